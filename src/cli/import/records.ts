import { z } from 'zod';
import { isRecord, Unreachable } from './client.ts';

// What is read of the other side's records: only what we bring over. It says null where it has nothing, or leaves a field out.
const text = z
  .string()
  .nullish()
  .transform((value) => value ?? undefined);
const texts = z
  .array(z.string())
  .nullish()
  .transform((value) => value ?? []);

export const subaccount = z.object({
  id: z.string(),
  name: text,
  custom_quota: z.number().nullish(),
  status: text,
  sent_total: z.number().nullish(),
});
export const notes = z.object({ notes: text });
export const template = z.object({
  name: z.string(),
  labels: texts,
  code: text,
  subject: text,
  from_email: text,
  from_name: text,
  text,
  publish_code: text,
  publish_subject: text,
  publish_from_email: text,
  publish_from_name: text,
  publish_text: text,
  published_at: text,
});
export const whitelistEntry = z.object({ email: z.string(), detail: text });
export const reject = z.object({ email: z.string(), reason: text, detail: text, subaccount: text });
export const senderDomain = z.object({ domain: z.string() });
export const webhook = z.object({ url: z.string(), description: text, events: texts });
export const inboundDomain = z.object({ domain: z.string() });
export const route = z.object({ pattern: z.string(), url: z.string() });

/** Reads one record. Throws `Unreachable` when the answer is none. */
export function readOne<T>(kind: string, item: z.ZodType<T>, answer: unknown): T {
  const [one] = readList(kind, item, [answer]);
  if (one === undefined) throw new Unreachable(`no ${kind} came`);
  return one;
}

/** Reads a list of records. Throws `Unreachable` when the answer is no such list. */
export function readList<T>(kind: string, item: z.ZodType<T>, answer: unknown): readonly T[] {
  const read = z.array(item).safeParse(answer);
  if (read.success) return read.data;
  const issue = read.error.issues[0];
  const shown = isRecord(answer)
    ? 'an object'
    : Array.isArray(answer)
      ? `${issue?.path.join('.')}: ${issue?.message}`
      : typeof answer;
  throw new Unreachable(`the list of ${kind} is not as such an API has it (${shown})`);
}
