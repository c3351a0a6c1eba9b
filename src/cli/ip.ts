import ipaddr from 'ipaddr.js';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { toAsciiDomain } from '../mail/address.ts';
import { INVENTORY, type IpRow, PLAIN_IP, toIpId } from '../store/rows/ips.ts';
import type { Store } from '../store/store.ts';
import { type Command, EXIT, type Invocation, toTable, UsageError } from './command.ts';
import { withStore } from './open.ts';

const ids = createIds(systemClock);

/** No mail can come from these. Private addresses can be right behind a NAT, and loopback on a developer's machine. */
const NEVER_SENDS: readonly string[] = ['unspecified', 'broadcast', 'multicast'];

function theAddress(call: Invocation): string {
  const [word, ...more] = call.words;
  if (word === undefined || more.length > 0) throw new UsageError('missing argument: ADDRESS');
  const id = toIpId(word);
  if (id === undefined) throw new UsageError(`"${word}" is no IP address`);
  if (NEVER_SENDS.includes(ipaddr.parse(id).range())) throw new UsageError(`no mail can be sent from ${id}`);
  return id;
}

function theDomain(call: Invocation): string | undefined {
  const given = call.text('domain');
  const domain = given === undefined ? undefined : toAsciiDomain(given);
  if (given !== undefined && !domain?.includes('.')) throw new UsageError(`"${given}" is no domain name`);
  return domain;
}

/** Says what stands in the way of a change in the inventory. */
async function inTheWay(store: Store, id: string): Promise<UsageError> {
  const row = await store.ips.one({ id });
  return new UsageError(row ? `${id} is in use by account ${row.account}` : `${id} is not in the inventory`);
}

export const ipAdd: Command = {
  name: 'ip add',
  args: 'ADDRESS',
  summary: 'Puts an address into the inventory that accounts are provisioned from.',
  options: {
    domain: {
      type: 'string',
      value: 'NAME',
      help: 'what its reverse DNS names (without: the address under our hostname)',
    },
  },
  notes: 'For an address that is there already, this changes its domain, and ends its rest if an account gave it back.',
  async run(call) {
    const id = theAddress(call);
    const domain = theDomain(call);
    return withStore(call.settings().settings, async (store) => {
      const now = new Date(systemClock.now());
      const claim = ids.key();
      const row: IpRow = {
        ...PLAIN_IP,
        id,
        account: INVENTORY,
        domain: '',
        homeDomain: domain ?? null,
        createdAt: now,
        freeAt: now,
        claim,
      };
      if (
        (await store.ips.insert(row)) === 'duplicate' &&
        !(await store.ips.change({ id, account: INVENTORY }, { homeDomain: domain, freeAt: now, claim }))
      )
        throw await inTheWay(store, id);
      call.print([{ ip: id, domain: domain ?? null }], () => `Added ${id}\n`);
      return EXIT.ok;
    });
  },
};

export const ipRemove: Command = {
  name: 'ip remove',
  args: 'ADDRESS',
  summary: 'Takes an address out of the inventory. One that an account has stays with it.',
  async run(call) {
    const id = theAddress(call);
    return withStore(call.settings().settings, async (store) => {
      if (!(await store.ips.remove({ id, account: INVENTORY }))) throw await inTheWay(store, id);
      call.print([{ ip: id, removed: true }], () => `Removed ${id}\n`);
      return EXIT.ok;
    });
  },
};

function toShown(row: IpRow, names: ReadonlyMap<string, string>, now: Date) {
  const free = row.account === INVENTORY;
  const rests = free && row.freeAt !== null && row.freeAt > now;
  return {
    ip: row.id,
    state: row.releasedAt ? 'returned' : !free ? 'in use' : rests ? 'resting' : 'free',
    account: free ? null : (names.get(row.account) ?? row.account),
    domain: row.domain || row.homeDomain,
    custom_domain: row.customDomain,
    custom_state: row.customState,
    free_at: rests && row.freeAt ? toTimestamp(row.freeAt) : null,
  };
}

export const ipList: Command = {
  name: 'ip list',
  summary: 'Lists all addresses: those of the inventory and those that accounts have.',
  notes: 'A custom domain that is pending waits for you: set the PTR record of the address to it.',
  async run(call) {
    return withStore(call.settings().settings, async (store) => {
      const names = new Map((await store.accounts.many({})).map(({ id, name }) => [id, name]));
      const now = new Date(systemClock.now());
      const shown = (await store.ips.many({}, { sort: 'id' })).map((row) => toShown(row, names, now));
      const waiting = (await store.ipRequests.many({})).length;
      const note =
        waiting === 0 ? '' : `\n${waiting} ${waiting === 1 ? 'account waits' : 'accounts wait'} for an address.\n`;
      call.print(
        shown,
        () =>
          toTable(
            ['address', 'state', 'account', 'domain', 'custom domain', 'custom state', 'free at'],
            shown.map((row) => Object.values(row)),
          ) + note,
      );
      return EXIT.ok;
    });
  },
};
