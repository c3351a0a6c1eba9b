import { type Clock, DAY_MS, HOUR_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { MAX_TESTED, type Task, testDue } from '../../base/service.ts';
import { checkDkim, checkSpf, type RecordCheck } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import { type Collection, filterOf, type Patch, type Row } from '../../store/driver/port.ts';
import type { SenderDomainRow } from '../../store/rows/domains.ts';
import type { Store } from '../../store/store.ts';
import type { KeySwitch } from './key-rotation.ts';
import { type DomainKeys, keyRecordNames, selectorOf } from './keys.ts';

export interface SenderSettings {
  readonly hostname: string;
  /** The domain that SPF records of sender domains must include. */
  readonly spfInclude: string;
  /** The DKIM selector, unless the key was rotated. */
  readonly dkimSelector: string;
}

/** Tests the DNS records of sender domains and stores the results. */
export type DomainTests = ReturnType<typeof createDomainTests>;

interface DomainTestDeps {
  readonly store: Pick<Store, 'senderDomains'>;
  readonly resolver: Resolver;
  readonly keys: DomainKeys;
  readonly keySwitch: Pick<KeySwitch, 'look'>;
  readonly clock: Clock;
}

/** How long after a change invalid records are tested more often. */
const RECENT_MS = 7 * DAY_MS;
/** A TTL of years is a mistake or an attack; no cache has to keep a record longer than this (RFC 8767 section 4). */
export const LONGEST_TTL_S = 7 * 24 * 3600;
/** The error of a domain that DNS has never answered for. */
const NEVER_ANSWERED = "This domain's DNS could not be reached. It will be tested again.";

export function createDomainTests(settings: SenderSettings, deps: DomainTestDeps) {
  const { store, resolver, keys, keySwitch, clock } = deps;

  async function test(row: SenderDomainRow): Promise<SenderDomainRow> {
    const key = await keySwitch.look(await keys.keyOf(row.domain));
    const { publicKey } = key;
    const [spf, dkim] = await Promise.all([
      checkSpf(resolver, row.domain, settings.spfInclude),
      checkDkim(
        resolver,
        keyRecordNames(settings, row.domain, { selector: selectorOf(key, settings), publicKey }),
        publicKey,
      ),
    ]);
    return changeTested(store.senderDomains, row, (before) => toPatch(before, spf, dkim, new Date(clock.now())));
  }
  return frozen({ test });
}

/** Whether mail of this account may be signed as the domain now. Needs a proof of ownership of its own. */
export function mayBeSigned(row: SenderDomainRow, now: Date): boolean {
  return row.verifiedAt !== null && row.spfValid === true && row.dkimValid === true && countsFrom(row, now) === null;
}

/** When both records count, which were found valid: once no cache has an older one. Null: now. */
export function countsFrom({ spfValidAfter, dkimValidAfter }: SenderDomainRow, now: Date): Date | null {
  const [later = null] = [spfValidAfter, dkimValidAfter]
    .filter((after) => after !== null && after > now)
    .toSorted((a, b) => Number(b) - Number(a));
  return later;
}

/** The state of a DNS record: whether it is valid (null: unknown), from when that counts, and what is wrong. */
interface RecordStatus {
  readonly valid: boolean | null;
  readonly validAfter: Date | null;
  readonly error: string | null;
}

const TRIES = 5;

/** Stores the result of a test of a row. `toPatch` is called again if the row was tested concurrently. */
export async function changeTested<R extends Row & { readonly version: number }>(
  rows: Pick<Collection<R>, 'one' | 'change'>,
  row: R,
  toPatch: (before: R) => Patch<R>,
): Promise<R> {
  const { id } = row;
  let before: R | undefined = row;
  for (let tries = 0; before && tries < TRIES; tries++) {
    const { version }: R = before;
    const patch = { ...toPatch(before), version: version + 1 };
    const after = await rows.change(filterOf<Row & { readonly version: number }, R>({ id, version }), patch);
    if (after) return after;
    before = await rows.one(filterOf<Row, R>({ id }));
  }
  return before ?? row;
}

/** The state of a record after a test. */
export function afterTest(before: RecordStatus, check: RecordCheck, now: Date): RecordStatus {
  if (check === 'unknown') return before.valid === null ? { ...before, error: NEVER_ANSWERED } : before;
  if (!check.valid) return { valid: false, validAfter: null, error: check.error };
  if (before.valid === true) return before;
  // If the first test succeeds, it counts immediately: no cache can hold a wrong record because of us.
  const validAfter = before.valid === null ? null : new Date(now.getTime() + Math.min(check.ttl, LONGEST_TTL_S) * 1000);
  return { valid: true, validAfter, error: null };
}

function toPatch(row: SenderDomainRow, spfCheck: RecordCheck, dkimCheck: RecordCheck, now: Date) {
  const spf = afterTest({ valid: row.spfValid, validAfter: row.spfValidAfter, error: row.spfError }, spfCheck, now);
  const dkim = afterTest(
    { valid: row.dkimValid, validAfter: row.dkimValidAfter, error: row.dkimError },
    dkimCheck,
    now,
  );
  const changed = spf.valid !== row.spfValid || dkim.valid !== row.dkimValid;
  const answered = spfCheck !== 'unknown' || dkimCheck !== 'unknown';
  const changedAt = changed ? now : row.changedAt;
  const settled = spf.valid === true && dkim.valid === true;
  const recent = now.getTime() - (changedAt ?? row.createdAt).getTime() < RECENT_MS;
  return {
    spfValid: spf.valid,
    spfValidAfter: spf.validAfter,
    spfError: spf.error,
    dkimValid: dkim.valid,
    dkimValidAfter: dkim.validAfter,
    dkimError: dkim.error,
    ...(answered && { lastTestedAt: now }),
    changedAt,
    nextTestAt: new Date(now.getTime() + (!settled && recent ? HOUR_MS : DAY_MS)),
  };
}

/** Switches to new DKIM keys seen in DNS, and tests SPF and DKIM of sender domains, the longest overdue first. */
export function retestSenderDomainsTask(deps: {
  readonly store: Pick<Store, 'senderDomains'>;
  readonly domainTests: DomainTests;
  readonly keySwitch: Pick<KeySwitch, 'lookAtAll'>;
  readonly clock: Clock;
}): Task {
  const { store, domainTests, keySwitch, clock } = deps;
  return {
    async run(ending) {
      const rotated = await keySwitch.lookAtAll(ending);
      const due = await store.senderDomains.many(
        { nextTestAt: { range: { lte: new Date(clock.now()) } } },
        { sort: 'nextTestAt', limit: MAX_TESTED },
      );
      const test = async (row: SenderDomainRow) => {
        const { spfValid, dkimValid } = await domainTests.test(row);
        return spfValid !== row.spfValid || dkimValid !== row.dkimValid;
      };
      const found = await testDue(due, test, ending);
      return rotated > 0 ? { tested: 0, changed: 0, ...found, rotated } : found;
    },
  };
}
