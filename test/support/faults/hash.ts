import { createHash } from 'node:crypto';

/** SHA-256 of a message, the same for what was sent and for what is posted: a post has its lines ended by LF alone. */
export function messageHash(text: string): string {
  return createHash('sha256').update(text.replaceAll('\r\n', '\n')).digest('hex');
}

const FIRST_LINE = 'X-Ledger: ';

/** A message without the lines that the daemon puts before the client's first. */
export const fromFirstLine = (raw: string): string => raw.slice(Math.max(0, raw.indexOf(FIRST_LINE)));

/** The messages in a post of mail, without the lines before the client's first. */
export function hashesOf(body: string): string[] {
  const events: unknown = JSON.parse(new URLSearchParams(body).get('mandrill_events') ?? '[]');
  if (!Array.isArray(events)) return [];
  return events.flatMap((event) => {
    const raw = event?.msg?.raw_msg;
    return typeof raw === 'string' ? [messageHash(fromFirstLine(raw))] : [];
  });
}
