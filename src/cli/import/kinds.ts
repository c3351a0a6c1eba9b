import type { z } from 'zod';
import type { ApiClient } from './client.ts';
import * as records from './records.ts';

/** One thing to bring over. */
export interface Item {
  /** What it is called in the report. */
  readonly name: string;
  /** Whether the target has it; then it is left as it is. */
  readonly there: boolean;
  bring(): Promise<void>;
  /** To be said of it when it was brought over. */
  readonly note?: string;
}

/** Everything of one kind. */
export interface Kind {
  readonly name: string;
  items(from: ApiClient, to: ApiClient, say: (note: string) => void): Promise<readonly Item[]>;
}

async function list<T>(
  api: ApiClient,
  path: string,
  kind: string,
  item: z.ZodType<T>,
  params = {},
): Promise<readonly T[]> {
  return records.readList(kind, item, await api.call(path, params));
}

/** A kind whose list both sides show whole, so that what is there already is known by its name. */
function listed<T>(kind: {
  readonly name: string;
  readonly path: string;
  readonly item: z.ZodType<T>;
  readonly note?: string;
  nameOf(record: T): string;
  /** `begun`: an import was cut off in the middle of it. */
  bring(record: T, to: ApiClient, from: ApiClient, begun: boolean): Promise<unknown>;
  /** Whether ours is what an import leaves that is cut off in the middle of theirs. Without it, one call brings all of it. */
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
  item: records.subaccount,
  nameOf: ({ id }) => id,
  begun: (theirs, ours) => theirs.status === 'paused' && ours.status === 'active' && ours.sent_total === 0,
  async bring({ id, name, custom_quota: quota, status }, to, from, begun) {
    if (!begun) {
      const { notes } = records.readOne('subaccount', records.notes, await from.call('/subaccounts/info', { id })); // the list has none
      await to.call('/subaccounts/add', { id, name, notes, custom_quota: quota && quota > 0 ? quota : undefined });
    }
    if (status === 'paused') await to.call('/subaccounts/pause', { id });
  },
});

type Template = z.output<typeof records.template>;

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

/** The published copy first, then the draft over it, where they differ: so both are as they were. */
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
  item: records.template,
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
    const theirs = await list(from, '/whitelists/list', 'whitelist entries', records.whitelistEntry);
    if (theirs.length >= 1000) say('the list shows no more than 1,000; bring the rest over by its export');
    // Adding an address twice changes nothing, so what is there need not be known.
    return theirs.map(({ email, detail }) => ({
      name: email,
      there: false,
      async bring() {
        await to.call('/whitelists/add', { email, comment: detail?.slice(0, 255) });
      },
    }));
  },
};

/** A soft bounce is over within days and would become a ban for ever. */
const PASSING = 'soft-bounce';

const rejects: Kind = {
  name: 'rejects',
  async items(from, to, say) {
    const theirs = await allRejects(from, say);
    const lasting = theirs.filter(({ reason }) => reason !== PASSING);
    if (lasting.length < theirs.length)
      say(`${theirs.length - lasting.length} soft bounces are left behind: they expire within days`);
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
  item: records.senderDomain,
  nameOf: ({ domain }) => domain,
  bring: ({ domain }, to) => to.call('/senders/add-domain', { domain }),
  note: 'publish the new DKIM record (/senders/check-domain shows it) and change the SPF include',
});

const webhooks = listed({
  name: 'webhooks',
  path: '/webhooks/list',
  item: records.webhook,
  nameOf: ({ url }) => url,
  bring: ({ url, description, events }, to) => to.call('/webhooks/add', { url, description, events }),
  note: 'give its consumer the new key (/webhooks/info)',
});

const inbound = listed({
  name: 'inbound domains',
  path: '/inbound/domains',
  item: records.inboundDomain,
  nameOf: ({ domain }) => domain,
  bring: ({ domain }, to) => to.call('/inbound/add-domain', { domain }),
  note: 'change its MX record when everything else is done',
});

const routes: Kind = {
  name: 'inbound routes',
  async items(from, to) {
    const domains = await list(from, '/inbound/domains', 'inbound domains', records.inboundDomain);
    const ours = new Set(
      (await list(to, '/inbound/domains', 'inbound domains', records.inboundDomain)).map(({ domain }) => domain),
    );
    const items: Item[] = [];
    for (const { domain } of domains) {
      const theirs = await list(from, '/inbound/routes', 'inbound routes', records.route, { domain });
      const known = new Set(
        ours.has(domain)
          ? (await list(to, '/inbound/routes', 'inbound routes', records.route, { domain })).map(
              ({ pattern }) => pattern,
            )
          : [],
      );
      items.push(
        ...theirs.map(({ pattern, url }) => ({
          name: `${pattern}@${domain}`,
          there: known.has(pattern),
          async bring() {
            await to.call('/inbound/add-route', { domain, pattern, url });
          },
          note: 'give its consumer the new key (/inbound/route-key)',
        })),
      );
    }
    return items;
  },
};

/** In the order in which one thing may need another: rejects name subaccounts, and a reject does not go where an address is whitelisted. */
export const KINDS: readonly Kind[] = [
  subaccounts,
  templates,
  whitelist,
  rejects,
  senderDomains,
  webhooks,
  inbound,
  routes,
];

type Reject = z.output<typeof records.reject>;

/** What one call shows at most. */
const PAGE = 1000;
/** Calls after which the list counts as too long to be read by searching. */
const MOST_CALLS = 3000;
/** What an address can go on with, the frequent ones first. */
const LETTERS = [...'abcdefghijklmnopqrstuvwxyz0123456789._-+@'];

/**
 * All entries of the account and of its subaccounts. A call shows at most 1,000 and has no pages: where a list is longer it is
 * searched by the beginnings of its addresses.
 */
export async function allRejects(api: ApiClient, say: (note: string) => void): Promise<readonly Reject[]> {
  const subaccounts = records
    .readList('subaccounts', records.subaccount, await api.call('/subaccounts/list'))
    .map(({ id }) => id);
  const found: Reject[] = [];
  for (const subaccount of [undefined, ...subaccounts]) found.push(...(await ofOne(api, subaccount, say)));
  return found;
}

async function ofOne(
  api: ApiClient,
  subaccount: string | undefined,
  say: (note: string) => void,
): Promise<readonly Reject[]> {
  const byAddress = new Map<string, Reject>();
  let calls = 0;
  let complete = true;

  async function search(beginning: string): Promise<void> {
    if (calls++ >= MOST_CALLS) {
      complete = false;
      return;
    }
    const page = records.readList(
      'rejects',
      records.reject,
      await api.call('/rejects/list', { email: beginning === '' ? undefined : beginning, subaccount }),
    );
    // The account's own list shows those of subaccounts on some servers; each is asked for by itself.
    for (const one of page)
      if ((one.subaccount ?? undefined) === subaccount) byAddress.set(one.email, { ...one, subaccount });
    if (page.length < PAGE) return;
    for (const letter of LETTERS) await search(beginning + letter);
  }
  await search('');
  if (!complete)
    say(
      `${subaccount === undefined ? 'the list' : `the list of ${subaccount}`} was too long to be read whole (${byAddress.size} found)`,
    );
  return [...byAddress.values()];
}
