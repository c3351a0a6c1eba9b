import { systemClock, toTimestamp } from '../base/clock.ts';
import { ownSigners } from '../examination/records.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { createKeyRotation } from '../sending/domains/key-rotation.ts';
import { createDomainKeys, keyRecord, keyRecordNames, newKeyPair, selectorOf } from '../sending/domains/keys.ts';
import type { Settings } from '../settings.ts';
import type { DomainKeyRow } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { type Command, EXIT, type Invocation, UsageError } from './command.ts';
import { runWithStore, type StoreCall, withStore } from './open.ts';

/**
 * signs: the key in use · next: will sign once its record is in the DNS · previous: no longer signs, but its record
 * must stay for a while.
 */
type State = 'signs' | 'next' | 'previous';

type Shown = ReturnType<typeof toShown>[number];

const rotationSettings = ({ hostname, senders }: Settings) => ({ hostname, dkimSelector: senders.dkim_selector });

/** The keys of a domain, beginning with the one in use. */
function toShown(row: DomainKeyRow, settings: Settings) {
  const shown = (state: State, key: { readonly selector: string; readonly publicKey: string }, at: Date | null) => {
    const { name, target } = keyRecordNames(settings, row.id, key);
    return {
      domain: row.id,
      state,
      selector: key.selector,
      name,
      txt: keyRecord(key.publicKey),
      cname: target,
      // signs: since when · next: when it takes over (null until its record was seen) · previous: until when it must
      // stay
      at: at && toTimestamp(at),
    };
  };
  const { next, previous } = row;
  return [
    shown('signs', { selector: selectorOf(row, rotationSettings(settings)), publicKey: row.publicKey }, row.createdAt),
    ...(next ? [shown('next', next, next.usableAt)] : []),
    ...(previous && previous.keepUntil.getTime() > systemClock.now()
      ? [shown('previous', previous, previous.keepUntil)]
      : []),
  ];
}

const SENTENCES: Readonly<Record<State, (at: string | null) => string>> = {
  signs: (at) => `current key, since ${at} UTC`,
  next: (at) =>
    at === null ? 'next key, used once its record is in the DNS' : `next key, record found; used from ${at} UTC`,
  previous: (at) => `previous key; keep its record until ${at} UTC`,
};

function toText({ state, name, txt, cname, at }: Shown): string {
  const alias = `or a CNAME to ${cname}, if you publish the TXT record there`;
  return `${name}  (${SENTENCES[state](at)})\n  TXT    ${txt}\n  ${alias}\n`;
}

function theDomain(call: Invocation): string | undefined {
  const [given] = call.words;
  const domain = given === undefined ? undefined : toAsciiDomain(given.trim());
  if (given !== undefined && domain === undefined) throw new UsageError(`"${given}" is not a domain name`);
  return domain;
}

const noKey = (domain: string) => new UsageError(`no DKIM key for ${domain} (see: postern dkim list)`);

export const dkimList: Command = {
  run: runWithStore(async ({ call, settings, store }) => {
    const shown = (await store.domainKeys.many({}, { sort: 'id' })).flatMap((row) => toShown(row, settings));
    call.table(shown, {
      none: 'No DKIM keys. A sender domain gets one when it is added: postern sender add DOMAIN',
      headings: ['domain', 'selector', 'state'],
      cells: ({ domain, selector, state, at }) => [domain, selector, SENTENCES[state](at)],
    });
  }),
};

export const dkimShow: Command = {
  args: '[DOMAIN]',
  async run(call) {
    const { settings } = call.settings();
    const given = theDomain(call);
    return withStore(settings, async (store) => {
      const domains = given === undefined ? ownSigners(settings) : [given];
      const rows = await Promise.all(domains.map((domain) => keyToShow(domain, settings, store)));
      const shown = rows.flatMap((row) => toShown(row, settings));
      call.print(shown, () => shown.map(toText).join('\n'));
    });
  },
};

/** The key of a domain; one of our own is made if needed, so that its record can be published before any mail. */
async function keyToShow(domain: string, settings: Settings, store: Store): Promise<DomainKeyRow> {
  const row = await store.domainKeys.one({ id: domain });
  if (row) return row;
  if (!ownSigners(settings).includes(domain)) throw noKey(domain);
  return createDomainKeys({ store, clock: systemClock, newKeyPair }).keyOf(domain);
}

export const dkimRotate: Command = {
  args: '[DOMAIN]',
  options: {
    all: { help: 'rotate the key of every domain' },
    cancel: { help: 'discard the new key, if it does not sign yet' },
  },
  notes:
    'Publish the record shown and keep the old one. A running daemon looks for the new record every five minutes and ' +
    'uses the key once the TTL of the record has passed. Keep the old record for a week after that. Keys alternate ' +
    'between two selectors.\n\n  postern dkim rotate example.com',
  async run(call, io) {
    const domain = theDomain(call);
    if ((domain === undefined) !== call.flag('all')) throw new UsageError('pass a DOMAIN, or --all');
    const { settings } = call.settings();
    return withStore(settings, async (store) => {
      const domains =
        domain === undefined ? (await store.domainKeys.many({}, { sort: 'id' })).map(({ id }) => id) : [domain];
      return (call.flag('cancel') ? cancel : rotate)(domains, { call, io, settings, store });
    });
  },
};

const rotationOf = ({ settings, store }: StoreCall) =>
  createKeyRotation(rotationSettings(settings), { store, clock: systemClock, newKeyPair });

async function rotate(domains: readonly string[], parts: StoreCall): Promise<number> {
  const { call, io, settings } = parts;
  const shown: Shown[] = [];
  let resting = 0;
  for (const domain of domains) {
    const begun = await rotationOf(parts).begin(domain);
    if (begun.kind === 'no key') throw noKey(domain);
    if (begun.kind === 'resting') {
      resting++;
      const free = toTimestamp(begun.until);
      const why = 'mail signed with the previous key may still be in transit';
      io.err(`postern dkim rotate: ${domain}: ${why}. Its selector is free again from ${free} UTC\n`);
    } else shown.push(...toShown(begun.row, settings).filter(({ state }) => state === 'next'));
  }
  const which = shown.length === 1 ? 'this record' : 'these records';
  const text = () => `Publish ${which} in addition to the existing ones:\n\n${shown.map(toText).join('\n')}`;
  if (shown.length > 0 || call.format !== 'text') call.print(shown, text);
  return resting > 0 ? EXIT.failed : EXIT.ok;
}

async function cancel(domains: readonly string[], parts: StoreCall): Promise<number> {
  const { call, settings, store } = parts;
  const shown: Shown[] = [];
  for (const domain of domains) {
    if (!(await rotationOf(parts).cancel(domain))) continue;
    const row = await store.domainKeys.one({ id: domain });
    if (row) shown.push(...toShown(row, settings));
  }
  call.print(shown, () =>
    shown.length === 0
      ? 'No new key to discard.\n'
      : shown.map(({ domain, selector }) => `${domain} keeps its key with the selector ${selector}.\n`).join(''),
  );
  return shown.length === 0 && domains.length === 1 ? EXIT.failed : EXIT.ok;
}
