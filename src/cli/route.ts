import { systemClock, toTimestamp } from '../base/clock.ts';
import { createLog } from '../base/log.ts';
import { createRouting } from '../inbound/routing.ts';
import { parseAddress } from '../mail/address.ts';
import { EXIT, UsageError, type Command } from './command.ts';
import { withStore } from './open.ts';
import { toTable } from './table.ts';

export const routeList: Command = {
  name: 'route list',
  args: '[DOMAIN]',
  summary: 'Lists the routes of all accounts, or of one domain.',
  async run(call, io) {
    return withStore(call.settings().settings, async (store) => {
      const domain = call.words[0];
      const rows = await store.inboundRoutes.many(domain === undefined ? {} : { domain });
      const shown = rows.map((row) => ({ id: row.id, domain: row.domain, pattern: row.pattern, url: row.url, account: row.account, created_at: toTimestamp(row.createdAt) }));
      if (call.json) io.out(JSON.stringify(shown) + '\n');
      else io.out(toTable(['id', 'domain', 'pattern', 'url'], shown.map((row) => [row.id, row.domain, row.pattern, row.url])));
      return EXIT.ok;
    });
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
  async run(call, io) {
    const text = call.words[0];
    const address = text === undefined ? undefined : parseAddress(text);
    if (!address) throw new UsageError(text === undefined ? 'say an address' : `not an address: ${text}`);
    return withStore(call.settings().settings, async (store) => {
      const routing = createRouting({ refreshMs: 60_000 }, { store, clock: systemClock, log: createLog('silent') });
      await routing.start();
      await routing.stop();
      const found = routing.lookup(address.mailbox, address.domain);
      if (call.json) io.out(JSON.stringify(found) + '\n');
      else if (found.kind === 'matched') io.out(`Route ${found.match.routeId} (${found.match.pattern}) posts it to ${found.match.url}\n`);
      else io.out(`Refused: ${SENTENCES[found.kind]}\n`);
      return found.kind === 'matched' ? EXIT.ok : EXIT.failed;
    });
  },
};
