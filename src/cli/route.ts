import { systemClock, toTimestamp } from '../base/clock.ts';
import { createLog } from '../base/log.ts';
import { createRouting } from '../inbound/routing.ts';
import { parseAddress, toAsciiDomain } from '../mail/address.ts';
import { type Command, EXIT, UsageError } from './command.ts';
import { claimantOption, ownerOf, RECORD, theDomain } from './domain.ts';
import { withOperations, withStore } from './open.ts';
import { toTable } from './table.ts';

export const routeList: Command = {
  name: 'route list',
  args: '[DOMAIN]',
  summary: 'Lists the routes of all accounts, or of one domain.',
  async run(call) {
    return withStore(call.settings().settings, async (store) => {
      const [domain] = call.words;
      const rows = await store.inboundRoutes.many(
        domain === undefined ? {} : { domain: toAsciiDomain(domain.trim()) ?? '' },
      );
      const shown = rows.map((row) => ({
        id: row.id,
        domain: row.domain,
        pattern: row.pattern,
        url: row.url,
        account: row.account,
        created_at: toTimestamp(row.createdAt),
      }));
      call.print(shown, () =>
        toTable(
          ['id', 'domain', 'pattern', 'url'],
          shown.map((row) => [row.id, row.domain, row.pattern, row.url]),
        ),
      );
      return EXIT.ok;
    });
  },
};

export const routeAdd: Command = {
  name: 'route add',
  args: 'DOMAIN PATTERN URL',
  options: { account: claimantOption },
  summary:
    'Adds a route to an inbound domain, by the rules of /inbound/add-route: mail to mailboxes that match the pattern is posted to the URL.',
  notes:
    'In the pattern * is any run of characters and ? one. The receiver must run: the URL has to answer HEAD with 200, or a POST with 2xx.\n\n' +
    "  postern route add in.example.com 'support-*' https://app.example.com/mail",
  async run(call) {
    const [domain, pattern, url] = call.words;
    if (domain === undefined || pattern === undefined || url === undefined)
      throw new UsageError('missing argument: DOMAIN PATTERN URL');
    const { settings } = call.settings();
    const account = await withStore(settings, async (store) => (await theDomain(store, call)).account);
    const record = RECORD.parse(
      await withOperations(settings, (run) => run('/inbound/add-route', account, { domain, pattern, url })),
    );
    call.print([record], () => `Added route ${String(record.id)}: ${pattern}@${domain} is posted to ${url}\n`);
    return EXIT.ok;
  },
};

export const routeRemove: Command = {
  name: 'route remove',
  args: 'ID',
  summary: 'Removes a route. What was accepted is still delivered.',
  async run(call) {
    const [id] = call.words;
    if (id === undefined) throw new UsageError('missing argument: ID (postern route list shows the ids)');
    const { settings } = call.settings();
    const account = await withStore(settings, async (store) => {
      const row = await store.inboundRoutes.one({ id });
      if (!row) throw new UsageError(`there is no route ${id} (postern route list)`);
      return ownerOf(store, row.account);
    });
    const record = RECORD.parse(await withOperations(settings, (run) => run('/inbound/delete-route', account, { id })));
    call.print([record], () => `Removed route ${id}.\n`);
    return EXIT.ok;
  },
};

const SENTENCES = {
  'no-route': 'the domain is ours, but no route matches the mailbox: 550 5.1.1',
  'not-ours': 'the domain is no inbound domain here: 550 5.7.1',
  unknown: 'the store is away and the routes were never read: 451 4.3.0',
} as const;

export const routeTest: Command = {
  name: 'route test',
  args: 'ADDRESS',
  summary: 'Says which route mail to an address would take; exit 1 when it would be refused.',
  async run(call) {
    const text = call.words[0];
    const address = text === undefined ? undefined : parseAddress(text);
    if (!address) throw new UsageError(text === undefined ? 'missing argument: ADDRESS' : `not an address: ${text}`);
    return withStore(call.settings().settings, async (store) => {
      const routing = createRouting({ refreshMs: 60_000 }, { store, clock: systemClock, log: createLog('silent') });
      await routing.start();
      await routing.stop();
      const found = routing.lookup(address.mailbox, address.domain);
      call.print([found], () =>
        found.kind === 'matched'
          ? `Route ${found.match.routeId} (${found.match.pattern}) posts it to ${found.match.url}\n`
          : `Refused: ${SENTENCES[found.kind]}\n`,
      );
      return found.kind === 'matched' ? EXIT.ok : EXIT.failed;
    });
  },
};
