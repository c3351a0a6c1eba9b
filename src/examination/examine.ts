import type { Clock } from '../base/clock.ts';
import { errorText } from '../base/errors.ts';
import type { Store } from '../store/store.ts';
import { blockLists } from './addresses.ts';
import { acmeCertificates, webPorts } from './certificates.ts';
import { type Check, type CheckContext, type Finding, fault, warning } from './finding.ts';
import { arriving, certificate, listening, outgoing } from './listening.ts';
import { clockCheck, disk, fileModes, memory, nameServers, readiness, storeCheck } from './machine.ts';
import { hostName, hostsFile, inboundDomainsCheck, postmaster, reservedDomains, senderDomainsCheck } from './names.ts';
import { ownMail, sending } from './own-mail.ts';
import { otherHosts } from './peers.ts';
import { scanners } from './scanners.ts';
import { waiting } from './waiting.ts';
import { mailOrigin, publicUrl } from './web.ts';

/** All checks; a check that others depend on comes before them. */
export const CHECKS: readonly Check[] = [
  clockCheck,
  disk,
  memory,
  fileModes,
  nameServers,
  storeCheck,
  readiness,
  otherHosts,
  listening,
  certificate,
  webPorts,
  acmeCertificates,
  hostName,
  hostsFile,
  arriving,
  publicUrl,
  mailOrigin,
  postmaster,
  sending,
  ownMail,
  inboundDomainsCheck,
  reservedDomains,
  senderDomainsCheck,
  outgoing,
  blockLists,
  scanners,
  waiting,
];

/** Time limit of one check: hundreds of domains with slow name servers must not hide the checks after them. */
const GIVE_UP_MS = 60_000;

interface Given {
  readonly world: CheckContext;
  /** Why the store could not be opened. */
  readonly storeFault?: unknown;
  readonly checks?: readonly Check[];
}

/** Runs the checks and yields their findings as they arise. Changes nothing, sends no mail, and never throws. */
export async function* examine({ world, storeFault, checks = CHECKS }: Given): AsyncGenerator<Finding> {
  const away = storeFault ?? (world.store && (await faultOf(world.store)));
  if (away === undefined) {
    for (const check of checks) yield* withinLimit(check, world);
    return;
  }
  // Without the store, that is one finding; the other checks still run.
  yield failed(storeCheck, away);
  const without = { ...world, store: undefined, noStore: 'the store is unavailable' };
  for (const check of checks) if (check !== storeCheck) yield* withinLimit(check, without);
}

/** The reason why the store does not answer; undefined if it does. */
function faultOf(store: Store): Promise<unknown> {
  return store.ping().then(
    () => undefined,
    (error: unknown) => error,
  );
}

/** Yields the findings of a check until it ends, fails, or takes too long. */
async function* withinLimit(check: Check, world: CheckContext): AsyncGenerator<Finding> {
  const found = check.run(world)[Symbol.asyncIterator]();
  const limit = startLimit(world.clock);
  try {
    while (true) {
      const next = await Promise.race([found.next(), limit.over]);
      if (next === 'over') {
        // It ends at its next step; do not wait for it.
        found.return?.().catch(() => {});
        return yield gaveUp(check);
      }
      if (next.done) return;
      yield next.value;
    }
  } catch (error) {
    yield failed(check, error);
  } finally {
    limit.cancel();
  }
}

function startLimit(clock: Clock): { readonly over: Promise<'over'>; cancel(): void } {
  const { promise, resolve } = Promise.withResolvers<'over'>();
  return { over: promise, cancel: clock.after(GIVE_UP_MS, () => resolve('over')) };
}

function gaveUp(check: Check): Finding {
  return warning(
    check.name,
    `gave up after ${GIVE_UP_MS / 1000} s`,
    'The other checks completed. If this happens again, find out whether the DNS, the store or the disk is slow.',
  );
}

function failed(check: Check, error: unknown): Finding {
  return fault(
    check.name,
    errorText(error),
    check === storeCheck
      ? 'Without it, mail is accepted for known routes only and the API answers 503. Check that it runs and that ' +
          'store.url is correct.'
      : 'This could not be checked. Fix the error, then run postern doctor again.',
  );
}
