import { createPrivateKey, generateKeyPairSync, hash, X509Certificate } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { createSecureContext, type SecureContext, type SecureVersion } from 'node:tls';
import { z } from 'zod';
import { type Clock, createLoop, DAY_MS, HOUR_MS, MINUTE_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { printable } from '../base/log.ts';
import { parseJson } from '../base/schema.ts';
import type { Tools } from '../base/tools.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { CertificateRow } from '../store/rows/certificates.ts';
import type { Store } from '../store/store.ts';
import type { Acme, Issued } from './acme.ts';
import { AcmeFault, adviceOn } from './acme-http.ts';
import type { Challenges } from './challenges.ts';
import { renewalId } from './csr.ts';
import { type CertificateNames, NAME_KINDS, type WantedName } from './names.ts';

interface CertificatesSettings {
  /** The directory URL of the authority. */
  readonly authority: string;
  /** Where certificates are kept for a start while the store is away; undefined: the store is on this host. */
  readonly copyFile: string | undefined;
  readonly minVersion: SecureVersion;
}

interface CertificatesDeps extends Pick<Tools, 'clock' | 'log' | 'metrics'> {
  readonly store: Pick<Store, 'certificates' | 'revisions'>;
  readonly names: CertificateNames;
  readonly challenges: Challenges;
  /** Undefined: no certificates are ordered. */
  readonly acme: Acme | undefined;
  /** Called when the certificate of a name has changed. */
  readonly changed: (name: string) => void;
}

/** How often a host checks for changes and for orders that are due. Milliseconds. */
const LOOK_MS = 15_000;
/** How often the names and all certificates are read if nothing was counted. */
const NAMES_MS = 10 * MINUTE_MS;
/** An order that has not ended after this time is repeated, perhaps by another host. */
const CLAIM_MS = 30 * MINUTE_MS;
/** The pause after a failed order; doubled with each failure. Let's Encrypt allows five failures per name and hour. */
const PAUSE_MS = 5 * MINUTE_MS;
/** Names of accounts wait longer: an account may have many that fail, and the authority limits our orders. */
const MAX_PAUSE_MS = { own: 6 * HOUR_MS, policy: DAY_MS, tracking: DAY_MS };
/** Orders for names of accounts between two checks of our own. */
const ORDERS_AT_ONCE = 20;
/** The default interval of asking the authority for its suggested renewal time. Milliseconds. */
const ASK_MS = 6 * HOUR_MS;
const ASKED_AT_ONCE = 20;
/** The counter of changes, by which other hosts notice them. */
const REVISION = 'certificates';

/** A certificate that can be served. */
interface Served extends Issued {
  readonly cert: X509Certificate;
  /** Created for the first client: most names of accounts have few. */
  context?: SecureContext;
}

/**
 * The certificates of this service: ordered by ACME, renewed, and kept in the store, where every host finds them. A row
 * that is due is claimed by one host. Served from memory, also while the store is away.
 */
export type Certificates = ReturnType<typeof createCertificates>;

export function createCertificates(settings: CertificatesSettings, deps: CertificatesDeps) {
  const { store, names, challenges, acme, clock, log } = deps;
  const { certificates, revisions } = store;
  const served = new Map<string, Served>();
  let isCopied = true;
  /** Issued certificates that are not in the store yet. */
  const unsaved = new Map<string, Issued>();
  /** The monotonic time of the next question about the renewal of a certificate. */
  const askAt = new Map<string, number>();
  let rows = new Map<string, CertificateRow>();
  let wanted = new Map<string, WantedName>(names.own.map((name) => [name, { name, kind: 'own' }]));
  let seen: number | undefined;
  let readAt = Number.NEGATIVE_INFINITY;
  let isAuthorityKnown = false;
  let namesReadAt = Number.NEGATIVE_INFINITY;
  /** The authority wants no orders for accounts' names before this time. */
  let restUntil = 0;

  const failures = new Map(
    NAME_KINDS.map((kind) => [kind, deps.metrics.counter('postern_acme_failures_total', { kind })]),
  );
  // Without an authority no name should have one.
  deps.metrics.gauge('postern_acme_certificates', () =>
    (acme ? NAME_KINDS : []).flatMap((kind) => {
      const all = [...wanted.values()].filter((one) => one.kind === kind);
      const valid = all.filter(({ name }) => isValid(served.get(name)));
      return [
        [{ kind, state: 'valid' }, valid.length] as const,
        [{ kind, state: 'missing' }, all.length - valid.length] as const,
      ];
    }),
  );
  deps.metrics.gauge('postern_acme_certificate_not_after_timestamp_seconds', () =>
    NAME_KINDS.flatMap((kind) => {
      const ends = [...wanted.values()].flatMap((one) => (one.kind === kind ? (served.get(one.name)?.cert ?? []) : []));
      const first = Math.min(...ends.map(({ validToDate }) => validToDate.getTime()));
      return Number.isFinite(first) ? [[{ kind }, first / 1000] as const] : [];
    }),
  );

  const isValid = (one: Served | undefined) => one !== undefined && one.cert.validToDate.getTime() > clock.now();

  /** Serves a certificate from now on. */
  function serve(name: string, issued: Issued): void {
    if (served.get(name)?.chain === issued.chain) return;
    const cert = certificateOf(issued);
    if (!cert) return log.error('certificate.failed', { name, reason: 'the certificate in the store is damaged' });
    served.set(name, { ...issued, cert });
    isCopied = false;
    askAt.delete(name);
    deps.changed(name);
  }

  function serveRows(all: readonly CertificateRow[]): void {
    rows = new Map(all.map((row) => [row.id, row]));
    for (const { id, chain, key } of all)
      if (chain !== null && key !== null && !unsaved.has(id)) serve(id, { chain, key });
    for (const name of served.keys()) if (!rows.has(name) && !unsaved.has(name)) served.delete(name);
  }

  async function keepCopy(): Promise<void> {
    const { copyFile } = settings;
    if (copyFile === undefined || isCopied) return;
    const copies = [...served].map(([name, { chain, key }]) => ({ name, chain, key }));
    const fresh = `${copyFile}.new`;
    await writeFile(fresh, JSON.stringify(copies), { mode: 0o600 })
      .then(() => rename(fresh, copyFile))
      .then(() => {
        isCopied = true;
      })
      .catch((error: unknown) => log.warn('daemon.fault', { part: 'certificates', error }));
  }

  /** Reads the changes of this and other hosts. */
  async function follow(): Promise<void> {
    const { count } = (await revisions.one({ id: REVISION })) ?? { count: 0 };
    const now = clock.monotonic();
    if (count === seen && now - readAt < NAMES_MS) return;
    if (count !== seen) namesReadAt = Number.NEGATIVE_INFINITY;
    serveRows(await certificates.many({}));
    [seen, readAt] = [count, now];
  }

  async function readNames(): Promise<void> {
    if (clock.monotonic() - namesReadAt < NAMES_MS) return;
    wanted = new Map((await names.all()).map((one) => [one.name, one]));
    namesReadAt = clock.monotonic();
    // A name that is not used any more keeps its certificate until that expires.
    for (const { id, notAfter } of rows.values())
      if (!wanted.has(id) && (notAfter?.getTime() ?? 0) < clock.now()) await certificates.remove({ id });
  }

  const rowOf = async (name: string): Promise<CertificateRow | undefined> => {
    const known = rows.get(name);
    if (known) return known;
    const dueAt = new Date(clock.now());
    const none = { chain: null, key: null, issuedAt: null, notAfter: null, error: null, failedAt: null };
    await certificates.insert({ id: name, ...none, dueAt, failures: 0 });
    return certificates.one({ id: name });
  };

  /** Whether the authority of the settings issued it. */
  const isOfOurAuthority = ({ authority = settings.authority }: Pick<CertificateRow, 'authority'>) =>
    authority === settings.authority;

  /**
   * Makes certificates of another authority due: that one may have been for tests. Only after a start, so that hosts
   * with different settings do not order in turn.
   */
  async function replaceForeign(): Promise<void> {
    if (isAuthorityKnown) return;
    const foreign = [...rows.values()].filter((row) => !isOfOurAuthority(row));
    for (const { id, dueAt } of foreign)
      await certificates.change({ id, dueAt }, { dueAt: new Date(clock.now()), failures: 0 });
    if (foreign.length > 0) await publishChange();
    isAuthorityKnown = true;
  }

  /** Orders every certificate that is due, one after the other, our own first. */
  async function orderDue(client: Acme): Promise<void> {
    let left = ORDERS_AT_ONCE;
    for (const { name, kind } of wanted.values()) {
      if (loop.isStopped() || left === 0) return;
      if (kind !== 'own' && clock.now() < restUntil) continue;
      const row = await rowOf(name);
      if (!row || row.dueAt.getTime() > clock.now()) continue;
      const claim = { dueAt: new Date(clock.now() + CLAIM_MS) };
      if (kind !== 'own') left--;
      // Of all hosts that read the same row, only one succeeds in changing it.
      if (!(await certificates.change({ id: name, dueAt: row.dueAt }, claim))) continue;
      if (kind === 'policy' && !(await names.pointsHere(name))) {
        await certificates.change({ id: name }, { dueAt: new Date(clock.now() + HOUR_MS) });
        readAt = Number.NEGATIVE_INFINITY;
        continue;
      }
      await order(client, { name, kind }, row);
    }
  }

  async function order(client: Acme, { name, kind }: WantedName, row: CertificateRow): Promise<void> {
    try {
      const replaces = row.chain === null || !isOfOurAuthority(row) ? undefined : renewalId(row.chain);
      const issued = await client.order(name, challenges.show, replaces);
      assertUsable(name, issued, clock.now());
      unsaved.set(name, issued);
      serve(name, issued);
      const fields = { name, not_after: served.get(name)?.cert.validToDate.toISOString() };
      log.info(row.chain === null ? 'certificate.issued' : 'certificate.renewed', fields);
      await save();
    } catch (error) {
      if (!(error instanceof AcmeFault)) throw error;
      if (loop.isStopped()) await certificates.change({ id: name }, { dueAt: row.dueAt });
      else await failed(client, { name, kind }, row, error);
    }
  }

  async function failed(client: Acme, { name, kind }: WantedName, row: CertificateRow, fault: AcmeFault) {
    failures.get(kind)?.add();
    const now = clock.now();
    const pause = Math.min(PAUSE_MS * 2 ** row.failures, MAX_PAUSE_MS[kind]);
    const again = new Date(now + Math.min(Math.max(pause, fault.retryAfterMs ?? 0), 7 * DAY_MS));
    if (fault.retryAfterMs !== undefined) restUntil = now + fault.retryAfterMs;
    else if (fault.type === 'unreachable') restUntil = now + PAUSE_MS;
    // It may quote what a stranger's server has answered.
    const reason = printable(fault.message);
    const note = adviceOn(fault.type, name, await client.caaNames().catch(() => []));
    log.warn('certificate.failed', { name, reason, note, again_at: again.toISOString() });
    const patch = { failures: row.failures + 1, error: `${reason} (${note})`, failedAt: new Date(now), dueAt: again };
    await certificates.change({ id: name }, patch);
    await publishChange();
  }

  /** Writes issued certificates to the store. */
  async function save(): Promise<void> {
    for (const [name, { chain, key }] of unsaved) {
      const { validFromDate, validToDate } = new X509Certificate(chain);
      const patch = {
        chain,
        key,
        authority: settings.authority,
        issuedAt: new Date(clock.now()),
        notAfter: validToDate,
        dueAt: new Date(renewalTime(chain, validFromDate.getTime(), validToDate.getTime())),
        failures: 0,
        error: null,
        failedAt: null,
      };
      if (!(await certificates.change({ id: name }, patch))) await certificates.insert({ id: name, ...patch });
      unsaved.delete(name);
      await publishChange();
    }
  }

  const publishChange = () => revisions.add(REVISION, { count: 1 }, { count: 0 });

  /** Asks the authority when it wants certificates to be renewed, which may be soon if it has to revoke them. */
  async function askRenewals(client: Acme): Promise<void> {
    const now = clock.monotonic();
    const due = [...served].filter(([name]) => (askAt.get(name) ?? 0) <= now).slice(0, ASKED_AT_ONCE);
    for (const [name, { chain }] of due) {
      const id = renewalId(chain);
      askAt.set(name, now + ASK_MS);
      const found = id === undefined ? undefined : await client.renewal(id).catch(() => 'away' as const);
      if (found === 'away') return;
      askAt.set(name, now + Math.min(Math.max(found?.askAfterMs ?? ASK_MS, HOUR_MS), DAY_MS));
      const row = rows.get(name);
      if (!found || !row || row.failures > 0) continue;
      const at = new Date(found.start + (found.end - found.start) * shareOf(chain));
      // Earlier only: the authority may be wrong, and a third of the lifetime is for repairs.
      if (at < row.dueAt && (await certificates.change({ id: name, dueAt: row.dueAt }, { dueAt: at })))
        await publishChange();
    }
  }

  async function look(client: Acme): Promise<number> {
    try {
      await save();
      await follow();
      await replaceForeign();
      await challenges.sweep();
      await readNames();
      await askRenewals(client);
      await follow();
      await orderDue(client);
      await follow();
    } catch (error) {
      // The store logs its own outage; the certificates that are known stay.
      if (!(error instanceof StoreAway)) log.error('daemon.fault', { part: 'certificates', error });
    }
    await keepCopy();
    return LOOK_MS;
  }

  const loop = createLoop(clock, async () => acme && look(acme));

  return frozen({
    /** Reads the certificates, from the copy on this host if the store is away. */
    async load(): Promise<void> {
      if (!acme) return;
      try {
        await follow();
      } catch (error) {
        if (!(error instanceof StoreAway)) throw error;
        for (const { name, ...issued } of await readCopy(settings.copyFile)) serve(name, issued);
      }
    },
    /** Begins to order and renew. Challenges must be answered by then. */
    start(): void {
      void loop.start();
    },
    /** Makes our own names due whose last order failed: the operator may have corrected the cause. */
    async retry(): Promise<void> {
      if (!acme) return;
      for (const id of names.own)
        await certificates.change({ id, failures: { range: { gt: 0 } } }, { dueAt: new Date(clock.now()) });
      await publishChange();
    },
    async stop(): Promise<void> {
      const ended = loop.stop();
      // An order in progress may take minutes; the next start, or another host, repeats it.
      await acme?.stop();
      await ended;
    },
    /** The certificate of a name and its key, PEM. */
    of: (name: string): Issued | undefined => served.get(name),
    /** The TLS context for a name; that of our first name with a certificate for names without one. */
    contextFor(name: string): SecureContext | undefined {
      const found = served.get(name.toLowerCase()) ?? served.get(names.own.find((one) => served.has(one)) ?? '');
      if (!found) return undefined;
      const { chain: cert, key } = found;
      found.context ??= createSecureContext({ cert, key, minVersion: settings.minVersion });
      return found.context;
    },
    /** Whether a name is one of ours. */
    isOurs: (name: string): boolean => wanted.has(name),
  });
}

/** A new key for our account at the authority, PKCS #8 in PEM. */
export function newAccountKey(): string {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' })
    .privateKey.export({ type: 'pkcs8', format: 'pem' })
    .toString();
}

/** Throws unless the certificate is for this name and key, and valid. */
function assertUsable(name: string, issued: Issued, now: number): void {
  const cert = certificateOf(issued);
  if (cert?.checkHost(name) === undefined || cert.validToDate.getTime() <= now)
    throw new AcmeFault({ type: 'unknown', detail: 'the authority issued a certificate that cannot be used' });
}

/** The certificate; undefined if it is damaged, or the key is another. */
function certificateOf({ chain, key }: Issued): X509Certificate | undefined {
  try {
    const cert = new X509Certificate(chain);
    return cert.checkPrivateKey(createPrivateKey(key)) ? cert : undefined;
  } catch {
    return undefined;
  }
}

/** With a third of the lifetime left, and up to a twentieth more, so that many certificates are not due at once. */
const renewalTime = (chain: string, from: number, to: number): number =>
  to - (to - from) * (1 / 3 + shareOf(chain) / 20);

/** A number in [0, 1) that is different for each certificate, and the same on every host. */
const shareOf = (chain: string): number => Number.parseInt(hash('sha256', chain, 'hex').slice(0, 8), 16) / 2 ** 32;

const copyShape = z.array(z.object({ name: z.string(), chain: z.string(), key: z.string() }));

async function readCopy(file: string | undefined) {
  const text = file === undefined ? '[]' : await readFile(file, 'utf8').catch(() => '[]');
  return parseJson(copyShape, text) ?? [];
}

/** Makes every host read the names again, and retries failed first orders at once, since their cause was removed. */
export async function retryMissing(store: Pick<Store, 'certificates' | 'revisions'>, clock: Clock): Promise<void> {
  const missing = await store.certificates.many({ chain: null });
  for (const { id, failures } of missing)
    if (failures > 0) await store.certificates.change({ id, failures }, { dueAt: new Date(clock.now()), failures: 0 });
  await store.revisions.add(REVISION, { count: 1 }, { count: 0 });
}
