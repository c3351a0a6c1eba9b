import { z } from 'zod';
import { isObject } from '../../base/json.ts';
import { type ApiClient, Unreachable } from './client.ts';

/** One item to import. */
export interface Item {
  /** Its name in the report. */
  readonly name: string;
  /** Whether the target has it already; then it is not changed. */
  readonly there: boolean;
  bring(): Promise<void>;
  /** A note for the report after it was imported. */
  readonly note?: string;
}

/** All items of one kind. */
export interface Kind {
  readonly name: string;
  items(from: ApiClient, to: ApiClient, say: (note: string) => void): Promise<readonly Item[]>;
}

// The records of the source, with only the fields that are imported. An empty field is null or absent.
const text = z
  .string()
  .nullish()
  .transform((value) => value ?? undefined);
const texts = z
  .array(z.string())
  .nullish()
  .transform((value) => value ?? []);

const subaccountRecord = z.object({
  id: z.string(),
  name: text,
  custom_quota: z.number().nullish(),
  status: text,
  sent_total: z.number().nullish(),
});
const notesRecord = z.object({ notes: text });
const templateRecord = z.object({
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
const whitelistEntryRecord = z.object({ email: z.string(), detail: text });
const rejectRecord = z.object({ email: z.string(), reason: text, detail: text, subaccount: text });
const senderDomainRecord = z.object({ domain: z.string() });
const webhookRecord = z.object({ url: z.string(), description: text, events: texts });
const inboundDomainRecord = z.object({ domain: z.string() });
/** `batch_events` and `order` exist only in Postern. */
const routeRecord = z.object({
  pattern: z.string(),
  url: z.string(),
  batch_events: z.int().optional(),
  order: z.string().optional(),
});

const list = async <T>(api: ApiClient, path: string, kind: string, item: z.ZodType<T>, params = {}) =>
  readList(kind, item, await api.call(path, params));

/** A kind that both sides list completely, so that existing items are known by name. */
function listed<T>(kind: {
  readonly name: string;
  readonly path: string;
  readonly item: z.ZodType<T>;
  readonly note?: string;
  nameOf(record: T): string;
  /** `begun`: an earlier import was interrupted in the middle of it. */
  bring(record: T, to: ApiClient, from: ApiClient, begun: boolean): Promise<unknown>;
  /** Whether `ours` is the remainder of an interrupted import of `theirs`. Absent where one call imports all of it. */
  begun?(theirs: T, ours: T): boolean;
}): Kind {
  const { name, path, item, note } = kind;
  return {
    name,
    async items(from, to) {
      const theirs = await list(from, path, name, item);
      const known = new Map((await list(to, path, name, item)).map((record) => [kind.nameOf(record), record]));
      return theirs.map((record) => {
        const ours = known.get(kind.nameOf(record));
        const begun = ours !== undefined && kind.begun?.(record, ours) === true;
        return {
          name: kind.nameOf(record),
          there: ours !== undefined && !begun,
          async bring() {
            await kind.bring(record, to, from, begun);
          },
          ...(note !== undefined && { note }),
        };
      });
    },
  };
}

const subaccounts = listed({
  name: 'subaccounts',
  path: '/subaccounts/list',
  item: subaccountRecord,
  nameOf: ({ id }) => id,
  begun: (theirs, ours) => theirs.status === 'paused' && ours.status === 'active' && ours.sent_total === 0,
  async bring({ id, name, custom_quota: quota, status }, to, from, begun) {
    if (!begun) {
      // the list has none
      const { notes } = readOne('subaccount', notesRecord, await from.call('/subaccounts/info', { id }));
      await to.call('/subaccounts/add', { id, name, notes, custom_quota: quota && quota > 0 ? quota : undefined });
    }
    if (status === 'paused') await to.call('/subaccounts/pause', { id });
  },
});

type Template = z.output<typeof templateRecord>;

const draftOf = ({ code, subject, from_email, from_name, text }: Template) => ({
  code,
  subject,
  from_email,
  from_name,
  text,
});
const publishedOf = (of: Template) => ({
  code: of.publish_code,
  subject: of.publish_subject,
  from_email: of.publish_from_email,
  from_name: of.publish_from_name,
  text: of.publish_text,
});
const same = (a: object, b: object) => JSON.stringify(a) === JSON.stringify(b);

/** Publishes the published copy first, then saves the draft over it where they differ. */
async function bringTemplate(template: Template, to: ApiClient, begun: boolean): Promise<void> {
  const { name, labels } = template;
  const [draft, published] = [draftOf(template), publishedOf(template)];
  if (template.published_at === undefined) {
    await to.call('/templates/add', { name, labels, ...draft, publish: false });
    return;
  }
  if (!begun) await to.call('/templates/add', { name, labels, ...published, publish: true });
  if (same(draft, published)) return;
  await to.call('/templates/update', {
    name,
    code: draft.code ?? '',
    subject: draft.subject ?? '',
    from_email: draft.from_email,
    from_name: draft.from_name ?? '',
    text: draft.text ?? '',
    publish: false,
  });
}

const templates = listed({
  name: 'templates',
  path: '/templates/list',
  item: templateRecord,
  nameOf: ({ name }) => name,
  bring: (template, to, _from, begun) => bringTemplate(template, to, begun),
  begun: (theirs, ours) =>
    theirs.published_at !== undefined &&
    !same(draftOf(theirs), publishedOf(theirs)) &&
    same(publishedOf(ours), publishedOf(theirs)) &&
    same(draftOf(ours), publishedOf(ours)),
});

const whitelist: Kind = {
  name: 'whitelist',
  async items(from, to, say) {
    const theirs = await list(from, '/whitelists/list', 'whitelist entries', whitelistEntryRecord);
    if (theirs.length >= 1000) say('the API lists only 1,000; import the rest from an export');
    // Adding an address twice changes nothing, so existing ones need not be known.
    return theirs.map(({ email, detail }) => ({
      name: email,
      there: false,
      async bring() {
        await to.call('/whitelists/add', { email, comment: detail?.slice(0, 255) });
      },
    }));
  },
};

/** Soft bounces expire within days; imported, they would be permanent. */
const TEMPORARY = 'soft-bounce';

const rejects: Kind = {
  name: 'rejects',
  async items(from, to, say) {
    const theirs = await allRejects(from, say);
    const lasting = theirs.filter(({ reason }) => reason !== TEMPORARY);
    if (lasting.length < theirs.length)
      say(`${theirs.length - lasting.length} soft bounces were skipped: they expire within days`);
    return lasting.map(({ email, reason, detail, subaccount }) => ({
      name: subaccount === undefined ? email : `${email} (${subaccount})`,
      there: false,
      async bring() {
        await to.call('/rejects/add', {
          email,
          comment: [reason, detail]
            .filter((part) => part)
            .join(': ')
            .slice(0, 1000),
          subaccount,
        });
      },
    }));
  },
};

const senderDomains = listed({
  name: 'sender domains',
  path: '/senders/domains',
  item: senderDomainRecord,
  nameOf: ({ domain }) => domain,
  bring: ({ domain }, to) => to.call('/senders/add-domain', { domain }),
  note: 'publish the new DKIM record (/senders/check-domain shows it) and change the SPF include',
});

const webhooks = listed({
  name: 'webhooks',
  path: '/webhooks/list',
  item: webhookRecord,
  nameOf: ({ url }) => url,
  bring: ({ url, description, events }, to) => to.call('/webhooks/add', { url, description, events }),
  note: 'give its consumer the new key (/webhooks/info)',
});

const inbound = listed({
  name: 'inbound domains',
  path: '/inbound/domains',
  item: inboundDomainRecord,
  nameOf: ({ domain }) => domain,
  bring: ({ domain }, to) => to.call('/inbound/add-domain', { domain }),
  note: 'change its MX record last',
});

const routes: Kind = {
  name: 'inbound routes',
  async items(from, to) {
    const domains = await list(from, '/inbound/domains', 'inbound domains', inboundDomainRecord);
    const ours = new Set(
      (await list(to, '/inbound/domains', 'inbound domains', inboundDomainRecord)).map(({ domain }) => domain),
    );
    const items: Item[] = [];
    for (const { domain } of domains) {
      const theirs = await list(from, '/inbound/routes', 'inbound routes', routeRecord, { domain });
      const known = new Set(
        ours.has(domain)
          ? (await list(to, '/inbound/routes', 'inbound routes', routeRecord, { domain })).map(({ pattern }) => pattern)
          : [],
      );
      items.push(
        ...theirs.map(({ pattern, url, batch_events, order }) => ({
          name: `${pattern}@${domain}`,
          there: known.has(pattern),
          async bring() {
            await to.call('/inbound/add-route', { domain, pattern, url, batch_events, order });
          },
          note: 'give its consumer the new key (/inbound/route-key)',
        })),
      );
    }
    return items;
  },
};

/** In order of dependency: rejects name subaccounts, and a whitelisted address cannot be rejected. */
export const IMPORTED_KINDS: readonly Kind[] = [
  subaccounts,
  templates,
  whitelist,
  rejects,
  senderDomains,
  webhooks,
  inbound,
  routes,
];

type Reject = z.output<typeof rejectRecord>;

/** The most entries that one call returns. */
const PAGE = 1000;
/** The most calls for one list. */
const MAX_CALLS = 3000;
/** The characters of addresses, frequent ones first. */
const LETTERS = [...'abcdefghijklmnopqrstuvwxyz0123456789._-+@'];

/**
 * All entries of the account and its subaccounts. A call returns at most 1,000 and there are no pages, so a longer list
 * is searched by the first letters of its addresses.
 */
async function allRejects(api: ApiClient, say: (note: string) => void): Promise<readonly Reject[]> {
  const subaccounts = await list(api, '/subaccounts/list', 'subaccounts', subaccountRecord);
  const found = await ofOne(api, undefined, say);
  for (const { id } of subaccounts) found.push(...(await ofOne(api, id, say)));
  return found;
}

async function ofOne(api: ApiClient, subaccount: string | undefined, say: (note: string) => void): Promise<Reject[]> {
  const byAddress = new Map<string, Reject>();
  let calls = 0;
  let complete = true;

  async function search(beginning: string): Promise<void> {
    if (calls++ >= MAX_CALLS) {
      complete = false;
      return;
    }
    const params = { email: beginning === '' ? undefined : beginning, subaccount };
    const page = await list(api, '/rejects/list', 'rejects', rejectRecord, params);
    // On some servers the account's own list includes those of subaccounts, which are read one by one.
    for (const one of page)
      if ((one.subaccount ?? undefined) === subaccount) byAddress.set(one.email, { ...one, subaccount });
    if (page.length < PAGE) return;
    for (const letter of LETTERS) await search(beginning + letter);
  }
  await search('');
  if (!complete)
    say(
      `${subaccount === undefined ? 'the list' : `the list of ${subaccount}`} is too long to read completely ` +
        `(${byAddress.size} found)`,
    );
  return [...byAddress.values()];
}

/** Reads one record. Throws `Unreachable` if the answer is not one. */
function readOne<T>(kind: string, item: z.ZodType<T>, answer: unknown): T {
  const [one] = readList(kind, item, [answer]);
  if (one === undefined) throw new Unreachable(`no ${kind} in the answer`);
  return one;
}

/** Reads a list of records. Throws `Unreachable` if the answer is not such a list. */
function readList<T>(kind: string, item: z.ZodType<T>, answer: unknown): readonly T[] {
  const read = z.array(item).safeParse(answer);
  if (read.success) return read.data;
  const issue = read.error.issues[0];
  const shown = isObject(answer)
    ? 'an object'
    : Array.isArray(answer)
      ? `${issue?.path.join('.')}: ${issue?.message}`
      : typeof answer;
  throw new Unreachable(`unexpected list of ${kind} (${shown})`);
}
