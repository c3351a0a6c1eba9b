import ipaddr from 'ipaddr.js';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { INVENTORY, type IpRow, PLAIN_IP, toIpId } from '../store/rows/ips.ts';
import type { Store } from '../store/store.ts';
import { type Command, type Invocation, toTable, UsageError } from './command.ts';
import { runWithStore, tools, withStore } from './open.ts';

/** Ranges that cannot send mail. Private addresses may be right behind a NAT, and loopback on a developer's machine. */
const NEVER_SENDS: readonly string[] = ['unspecified', 'broadcast', 'multicast'];

function theAddress(call: Invocation): string {
  const word = call.word('ADDRESS');
  const id = toIpId(word);
  if (id === undefined) throw new UsageError(`"${word}" is not an IP address`);
  if (NEVER_SENDS.includes(ipaddr.parse(id).range())) throw new UsageError(`mail cannot be sent from ${id}`);
  return id;
}

function theDomain(call: Invocation): string | undefined {
  const given = call.text('domain');
  const domain = given === undefined ? undefined : toAsciiDomain(given);
  if (given !== undefined && !domain?.includes('.')) throw new UsageError(`"${given}" is not a domain name`);
  return domain;
}

/** The reason why an address of the inventory cannot be changed. */
async function conflict(store: Store, id: string): Promise<UsageError> {
  const row = await store.ips.one({ id });
  return new UsageError(
    row ? `${id} is in use by account ${row.account}, which must give it back first` : `${id} is not in the inventory`,
  );
}

export const ipAdd: Command = {
  args: 'ADDRESS',
  options: {
    domain: { value: 'NAME', help: 'its reverse DNS name (default: the address as a label below hostname)' },
  },
  notes: 'For an address already in the inventory, this changes its domain and ends its quarantine.',
  async run(call) {
    const id = theAddress(call);
    const domain = theDomain(call);
    return withStore(call.settings().settings, async (store) => {
      const now = new Date(systemClock.now());
      const claim = tools.ids.key();
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
        throw await conflict(store, id);
      call.print([{ ip: id, domain: domain ?? null }], () => `Added ${id}\n`);
    });
  },
};

export const ipRemove: Command = {
  args: 'ADDRESS',
  async run(call) {
    const id = theAddress(call);
    return withStore(call.settings().settings, async (store) => {
      if (!(await store.ips.remove({ id, account: INVENTORY }))) throw await conflict(store, id);
      call.print([{ ip: id, removed: true }], () => `Removed ${id}\n`);
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
  notes: 'If the custom state is pending, set the PTR record of the address to the custom domain.',
  run: runWithStore(async ({ call, store }) => {
    const names = new Map((await store.accounts.many({})).map(({ id, name }) => [id, name]));
    const now = new Date(systemClock.now());
    const shown = (await store.ips.many({}, { sort: 'id' })).map((row) => toShown(row, names, now));
    const waiting = (await store.ipRequests.many({})).length;
    const note =
      waiting === 0 ? '' : `\n${waiting} ${waiting === 1 ? 'account is' : 'accounts are'} waiting for an address.\n`;
    const headings = ['address', 'state', 'account', 'domain', 'custom domain', 'custom state', 'free at'];
    const table = () =>
      shown.length === 0
        ? 'No addresses. Add one: postern ip add ADDRESS\n'
        : toTable(headings, shown.map(Object.values));
    call.print(shown, () => table() + note);
  }),
};
