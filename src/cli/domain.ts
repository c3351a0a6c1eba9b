import { z } from 'zod';
import { toTimestamp } from '../base/clock.ts';
import { parseObject } from '../base/json.ts';
import type { Daemon } from '../daemon.ts';
import { ACTION_NAMES, ACTIONS, toAction } from '../inbound/decision.ts';
import { ATTACHMENT_MODES, FORMAT_NAMES, toFormat } from '../inbound/formats.ts';
import { ORDER_NAMES, ORDERS, toOrder } from '../inbound/order.ts';
import { isPulled } from '../inbound/pulled.ts';
import { createRouting } from '../inbound/routing.ts';
import type { Match } from '../inbound/types.ts';
import { parseAddress } from '../mail/addresses/address.ts';
import { toInboundDomain } from '../mail/addresses/wildcard-domain.ts';
import type { Settings } from '../settings.ts';
import type { AccountRow } from '../store/rows/accounts.ts';
import { claimId, isClaim } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { accountOption, accountsOf, onlyAccount, theAccount } from './account.ts';
import { type Command, EXIT, type Invocation, toTable, UsageError } from './command.ts';
import { runWithStore, tools, withOperations, withStore } from './open.ts';

const RECORD = z.record(z.string(), z.unknown());

/** Calls an API operation that returns one record. */
const operate = (settings: Settings, ...[path, account, params]: Parameters<Daemon['run']>) =>
  withOperations(settings, async (run) => RECORD.parse(await run(path, account, params)));

/** The account that owns a row. */
async function ownerOf(store: Pick<Store, 'accounts'>, account: string): Promise<AccountRow> {
  const row = await store.accounts.one({ id: account });
  if (!row) throw new Error(`account ${account} no longer exists`);
  return row;
}

/** Selects an account where several claim an unproven domain. */
const claimantOption = { ...accountOption, help: 'account name or id, if several claim the domain' };

/** The domain given on the command line, with the account that owns it or else claims it. */
async function theDomain(
  store: Store,
  call: Invocation,
): Promise<{ readonly domain: string; readonly account: AccountRow }> {
  const word = call.word('DOMAIN');
  const name = toInboundDomain(word.trim()) ?? '';
  const wanted = call.text('account') === undefined ? undefined : await theAccount(store, call);
  const claims = await store.inboundDomains.many({ id: { startsWith: claimId(name, '') } });
  const owned = await store.inboundDomains.one({ id: name });
  const [row, another] = [...(owned ? [owned] : []), ...claims].filter(
    ({ account }) => !wanted || account === wanted.id,
  );
  if (!row)
    throw new UsageError(
      `no such inbound domain: ${word}. List them with postern domain list, add it with postern domain add`,
    );
  if (!owned && another) throw new UsageError(`several accounts claim ${word}; choose one with --account`);
  return { domain: row.domain, account: await ownerOf(store, row.account) };
}

/** Calls an operation of the API about the domain given on the command line. */
async function operateOnDomain(path: string, call: Invocation) {
  const { settings } = call.settings();
  const { domain, account } = await withStore(settings, (store) => theDomain(store, call));
  return { domain, account, record: await operate(settings, path, account, { domain }) };
}

/** The record that must be published before mail is accepted for a new domain; '' if none is needed. */
function proofHint(record: Readonly<Record<string, unknown>>): string {
  if (record.routed !== false) return '';
  const [name, value] = [String(record.txt_name), String(record.txt_value)];
  return `Mail for it is accepted once this record is in the DNS:\n\n  ${name}  TXT  "${value}"\n\n`;
}

export const domainAdd: Command = {
  args: 'DOMAIN',
  options: { account: accountOption },
  notes:
    'Mail is accepted once the domain has a route (postern route add). A running daemon applies changes within ' +
    'seconds (inbound.refresh_ms).',
  async run(call) {
    const domain = call.word('DOMAIN');
    const { settings } = call.settings();
    const account = await withStore(settings, (store) => theAccount(store, call));
    const record = await operate(settings, '/inbound/add-domain', account, { domain });
    const added = String(record.domain);
    const next = `next: postern route add ${added} '*' URL; its DNS records: postern dns ${added}\n`;
    call.print([record], () => `Added ${added} to account ${account.name}.\n${proofHint(record)}${next}`);
  },
};

export const domainRemove: Command = {
  args: 'DOMAIN',
  options: { account: claimantOption },
  async run(call) {
    const { domain, account, record } = await operateOnDomain('/inbound/delete-domain', call);
    call.print([record], () => `Removed ${domain} from account ${account.name}.\n`);
  },
};

export const domainCheck: Command = {
  args: 'DOMAIN',
  options: { account: claimantOption },
  async run(call) {
    const { record } = await operateOnDomain('/inbound/check-domain', call);
    call.print([record], () =>
      toTable(
        ['field', 'value'],
        Object.entries(record).map(([name, value]) => [
          name,
          typeof value === 'string' ? value : JSON.stringify(value),
        ]),
      ),
    );
    return record.valid_mx === true ? EXIT.ok : EXIT.failed;
  },
};

export const domainList: Command = {
  options: { account: onlyAccount },
  run: runWithStore(async ({ call, store }) => {
    const { names, only } = await accountsOf(store, call);
    const rows = await store.inboundDomains.many(only, { sort: 'createdAt' });
    const shown = rows.map((row) => ({
      domain: row.domain,
      account: row.account,
      account_name: names.get(row.account) ?? null,
      valid_mx: row.validMx,
      routed: !isClaim(row),
      created_at: toTimestamp(row.createdAt),
    }));
    call.table(shown, {
      none: 'No inbound domains. Add one: postern domain add DOMAIN',
      headings: ['domain', 'account', 'accepts mail', 'valid MX', 'created'],
      cells: (row) => [
        row.domain,
        row.account_name ?? row.account,
        row.routed ? 'yes' : 'not yet proven',
        row.valid_mx ? 'yes' : 'no',
        row.created_at,
      ],
    });
  }),
};

export const routeList: Command = {
  args: '[DOMAIN]',
  run: runWithStore(async ({ call, store }) => {
    const [domain] = call.words;
    const rows = await store.inboundRoutes.many(
      domain === undefined ? {} : { domain: toInboundDomain(domain.trim()) ?? '' },
    );
    const shown = rows.map((row) => ({
      id: row.id,
      domain: row.domain,
      pattern: row.pattern,
      url: row.url,
      batch_events: row.batchEvents ?? 1,
      order: toOrder(row.order),
      format: toFormat(row.format),
      action: toAction(row.action),
      priority: row.priority ?? 0,
      conditions: Object.keys(row.when ?? {}),
      account: row.account,
      created_at: toTimestamp(row.createdAt),
    }));
    call.table(shown, {
      none: `No routes${domain === undefined ? '' : ` of ${domain}`}. Add one: postern route add DOMAIN PATTERN URL`,
      headings: ['id', 'domain', 'pattern', 'when', 'action', 'format', 'batch', 'url'],
      cells: (row) => [
        row.id,
        row.domain,
        row.pattern,
        row.conditions.join(' ') || '-',
        row.action,
        row.format,
        String(row.batch_events),
        row.url || '-',
      ],
    });
  }),
};

export const routeAdd: Command = {
  args: 'DOMAIN PATTERN [URL]',
  options: {
    account: claimantOption,
    'batch-events': { value: 'COUNT', help: 'maximum number of waiting messages per POST (default: 1)' },
    format: {
      value: 'FORMAT',
      help: `payload format: ${FORMAT_NAMES.join(', ')} (default: inbound.default_format)`,
    },
    attachments: {
      value: 'MODE',
      values: ATTACHMENT_MODES,
      help:
        'inline: in the POST · link: as links · none: name and size only · auto (default): inline, or links if ' +
        'the receiver answers 413',
    },
    facts: { help: 'add `facts` to the payload: visible and hidden text, invisible characters, misleading links' },
    order: {
      value: 'ORDER',
      values: ORDER_NAMES,
      help:
        `delivery order: ${ORDER_NAMES.map((name) => `${name}: ${ORDERS[name].about}`).join(' · ')} (default: ` +
        'none)',
    },
    action: {
      value: 'ACTION',
      values: ACTION_NAMES,
      help:
        'action for matching mail: ' +
        `${ACTION_NAMES.map((name) => `${name}: ${ACTIONS[name].about.replaceAll('`', '')}`).join(' · ')} ` +
        '(default: post)',
    },
    when: { value: 'JSON', help: 'match only mail that meets these conditions (`when` of /inbound/add-route)' },
    tag: { multiple: true, value: 'TAG', help: 'add to `tags` in the payload; may be repeated' },
    priority: { value: 'NUMBER', help: 'routes with a higher priority are tried first (default: 0)' },
  },
  notes:
    'In the pattern, * matches any number of characters and ? matches one. The receiver must be running: the ' +
    'URL has to answer HEAD with 200, or a POST with 2xx. With the URL pull:, mail waits until postern listen or ' +
    '/inbound/pull fetches it.\n\n' +
    "  postern route add in.example.com 'support-*' https://app.example.com/mail\n" +
    `  postern route add in.example.com '*' --action reject --when '{"dmarc":"fail"}'`,
  async run(call) {
    const [domain, pattern, url] = [call.word('DOMAIN'), call.word('PATTERN', 1), call.words[2]];
    const action = call.text('action');
    if (url === undefined && (action ?? 'post') === 'post') call.word('URL', 2);
    const { settings } = call.settings();
    const account = await withStore(settings, async (store) => (await theDomain(store, call)).account);
    const batch = call.text('batch-events');
    const [format] = call.known('format', FORMAT_NAMES);
    const attachments = call.text('attachments');
    const order = call.text('order');
    const params = {
      ...{ domain, pattern, url, action, format, attachments, order },
      batch_events: batch === undefined ? undefined : toCount(batch),
      facts: call.flag('facts') || undefined,
      ...toRules(call),
    };
    const record = await operate(settings, '/inbound/add-route', account, params);
    const posted = url !== undefined && isPulled(url) ? `waits at ${url} until it is fetched` : `is posted to ${url}`;
    const does = record.action === 'post' ? posted : `has the action ${String(record.action)}`;
    call.print([record], () => `Added route ${String(record.id)}: ${pattern}@${domain} ${does}\n`);
  },
};

/** The parameters about the mail that a route matches, and the content of its posts. */
function toRules(call: Invocation): object {
  const [when, priority, tags] = [call.text('when'), call.text('priority'), call.texts('tag')];
  if (priority !== undefined && !/^-?\d{1,4}$/.test(priority))
    throw new UsageError('--priority must be a whole number');
  return {
    when: when === undefined ? undefined : toCondition(when),
    priority: priority === undefined ? undefined : Number(priority),
    tags: tags.length > 0 ? tags : undefined,
  };
}

function toCondition(text: string): object {
  const condition = parseObject(text);
  if (!condition) throw new UsageError(`--when must be a JSON object, such as {"dmarc":"fail"}; not "${text}"`);
  return condition;
}

function toCount(text: string): number {
  if (!/^\d{1,4}$/.test(text)) throw new UsageError('--batch-events must be a positive whole number');
  return Number(text);
}

export const routeRemove: Command = {
  args: 'ID',
  async run(call) {
    const id = call.word('ID (see: postern route list)');
    const { settings } = call.settings();
    const account = await withStore(settings, async (store) => {
      const row = await store.inboundRoutes.one({ id });
      if (!row) throw new UsageError(`no such route: ${id} (see: postern route list)`);
      return ownerOf(store, row.account);
    });
    const record = await operate(settings, '/inbound/delete-route', account, { id });
    call.print([record], () => `Removed route ${id}.\n`);
  },
};

const SENTENCES = {
  'no-route': 'no route of the domain matches the mailbox: 550 5.1.1',
  rejected: 'a route of the domain rejects mail to the mailbox: 550 5.7.1',
  expired: 'expired reply address: 550 5.7.1',
  'not-ours': 'not an inbound domain here: 550 5.7.1',
  unknown: 'the store is unavailable, and the routes could not be read: 451 4.3.0',
  'too-new': 'a newer Postern changed the domain or a matching route; upgrade this host: 451 4.3.0',
} as const;

/** The fate of matching mail, as a sentence. */
function toSentence({ choices = [], routeId, pattern, url, fate }: Match): string {
  const named = choices.map(({ match, action }) => `${match.routeId} (${match.pattern}, ${action})`).join(', ');
  if (choices.length > 0) return `Depends on the message. Routes, in the order in which they are tried: ${named}`;
  const route = `Route ${routeId} (${pattern})`;
  const action = ACTION_NAMES.find((name) => fate !== undefined && ACTIONS[name].fate === fate);
  if (action) return `${route} matches. ${ACTIONS[action].does}`;
  return `${route} ${isPulled(url) ? 'queues it at' : 'posts it to'} ${url}`;
}

export const routeTest: Command = {
  args: 'ADDRESS',
  async run(call) {
    const text = call.word('ADDRESS');
    const address = parseAddress(text);
    if (!address) throw new UsageError(`not an email address: ${text}`);
    return withStore(call.settings().settings, async (store) => {
      const routing = createRouting({ refreshMs: 60_000 }, { store, ...tools });
      await routing.start();
      await routing.stop();
      const found = routing.lookup(address.mailbox, address.domain);
      call.print([found], () =>
        found.kind === 'matched' ? `${toSentence(found.match)}\n` : `Refused: ${SENTENCES[found.kind]}\n`,
      );
      return found.kind === 'matched' ? EXIT.ok : EXIT.failed;
    });
  },
};
