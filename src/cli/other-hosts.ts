import {
  type HostRpc,
  type OtherHost,
  otherHost,
  type RpcResult,
  whyMissing,
  whyUnanswered,
} from '../api/hosts/host-rpc.ts';
import { duplicates, type MailOfHost } from '../api/hosts/join-hosts.ts';
import { createPeerWire } from '../api/hosts/peer-wire.ts';
import { printable } from '../base/log.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { hasOwnStore } from '../config.ts';
import type { Settings } from '../settings.ts';
import { createTokenSecret, type HostRow } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { ownId } from './adoption.ts';
import { type Cells, EXIT, type Invocation, type Io, toTable, UsageError } from './command.ts';
import { tools, withStore } from './open.ts';

// The other hosts of the store, which commands about the queue and the history ask too.

/** How long to wait for the store, because the queue can be read while it is away. Milliseconds. */
const PATIENCE_MS = 2000;

const patient = (settings: Settings): Settings => {
  const { store } = settings;
  return { ...settings, store: { ...store, timeout_ms: Math.min(store.timeout_ms, PATIENCE_MS) } };
};

async function readHosts(store: Pick<Store, 'hosts'>, settings: Settings) {
  const id = ownId(settings);
  const rows = await store.hosts.many({}, { sort: 'id' });
  const own = rows.find((row) => row.id === id)?.name ?? settings.hostname;
  return { own, others: rows.filter((row) => row.id !== id) };
}

/** The option of commands about all hosts. */
export const hostOption = {
  value: 'HOSTNAME',
  help: 'only on this host of the store (default: on all of them)',
} as const;

/** For the help of commands that list. */
export const LISTS_ALL_HOSTS =
  'With several hosts, the rows of all hosts are listed, or those of --host. Hosts that do not answer are named, and ' +
  'the exit code is 1, unless they were stopped or have no http.peer_url.';

/** The hosts to which a command applies. */
interface MeantHosts {
  /** The name of this host. */
  readonly own: string;
  /** Whether this host is one of them. */
  readonly isHere: boolean;
  readonly others: readonly OtherHost[];
  /** Why the other hosts are unknown. */
  readonly fault: string | undefined;
}

/** Calls `use` with the host of --host, or with all hosts of the store. */
export async function withHosts<T>(call: Invocation, use: (hosts: MeantHosts) => Promise<T>): Promise<T> {
  const { settings } = call.settings();
  const wanted = call.text('host');
  const isOwn = wanted === settings.hostname || (wanted !== undefined && wanted === ownId(settings));
  const alone = { own: settings.hostname, isHere: true, others: [], fault: undefined };
  if (isOwn || (hasOwnStore(settings) && wanted === undefined)) return use(alone);
  if (hasOwnStore(settings)) throw unknownHost(wanted ?? '');
  let isRead = false;
  try {
    return await withStore(patient(settings), async (store) => {
      const { own, others } = await readHosts(store, settings);
      isRead = true;
      const isHere = wanted === undefined || wanted === own;
      const meant = wanted === undefined ? others : isHere ? [] : [findHost(others, wanted)];
      const wire = createCommandWire(store, settings);
      return use({ own, isHere, others: meant.map((row) => otherHost(row, wire)), fault: undefined });
    });
  } catch (error) {
    if (isRead || wanted !== undefined || !(error instanceof Error)) throw error;
    return use({ ...alone, fault: error.message });
  }
}

/** The host with a name or id. */
export function findHost(rows: readonly HostRow[], word: string): HostRow {
  const [found, ...more] = rows.filter(({ id, name }) => id === word || name === word);
  if (!found) throw unknownHost(word);
  if (more.length > 0) throw new UsageError(`several hosts are named ${word}; pass an id (see: postern host list)`);
  return found;
}

const unknownHost = (word: string) => new UsageError(`no such host: ${word} (see: postern host list)`);

/** The answer of one host. */
export interface HostPart<A> {
  /** Its name, if there are several. */
  readonly host: string | undefined;
  readonly answer: A;
}

/** How a command reads from this host, and from another one. */
interface Reading<A> {
  here(isSeveral: boolean): Promise<RpcResult<A>>;
  there(ask: OtherHost['ask'], isSeveral: boolean): Promise<RpcResult<A>>;
  /** Whether another host has more than it lists at once. */
  readonly isCut?: (answer: A) => boolean;
}

/**
 * Prints the lists of all hosts, with their names if there are several. Names hosts that do not answer, and exits 1 if
 * one of them was expected to (`isExpected`), like a change of the queue.
 */
export function listOnHosts<A>(
  call: Invocation,
  io: Io,
  { here, there, isCut }: Reading<A>,
  print: (parts: readonly HostPart<A>[], isSeveral: boolean) => void,
): Promise<number> {
  return withHosts(call, async ({ own, isHere, others, fault }) => {
    const isSeveral = others.length + (isHere ? 1 : 0) > 1;
    const toAsked = async (name: string, host: OtherHost | undefined) => {
      return { name, host, asked: host ? await there(host.ask, isSeveral) : await here(isSeveral) };
    };
    const asked = await Promise.all([
      ...(isHere ? [toAsked(own, undefined)] : []),
      ...others.map((host) => toAsked(host.row.name, host)),
    ]);
    const parts = asked.flatMap(({ name, asked: one }) =>
      one.kind === 'answered' ? [{ host: isSeveral ? name : undefined, answer: one.answer }] : [],
    );
    if (parts.length > 0) print(parts, isSeveral);
    let code: number = EXIT.ok;
    for (const { host, name, asked: one } of asked) {
      const isAnswered = one.kind === 'answered';
      if (isAnswered && !(host && isCut?.(one.answer))) continue;
      const why = isAnswered ? CUT : whyMissing(one, 'its rows are not listed', false);
      io.err(`${printable(`${name} ${why}`)}.\n`);
      if (isAnswered || isExpected(host, call)) code = EXIT.failed;
    }
    return fault === undefined ? code : sayUnknown(io, fault);
  });
}

const CUT = 'has more rows than it lists for another host. To see them, run the command there';

/** Whether a host must answer: it is this one, was named, or runs and has a URL for it. */
export function isExpected(host: OtherHost | undefined, call: Invocation): boolean {
  const { incarnation, url = '' } = host?.row ?? {};
  return !host || call.text('host') !== undefined || (incarnation !== null && url !== '');
}

/** Prints that the other hosts of the store are unknown. */
export function sayUnknown(io: Io, fault: string): number {
  io.err(`The other hosts of the store were not asked: ${printable(fault)}\n`);
  return EXIT.tryLater;
}

/** Rows of several hosts, the newest first, those of each host in their order. */
export function newestFirst<R extends { readonly at: number }>(lists: readonly (readonly R[])[], most: number): R[] {
  const heads = lists.map((rows) => ({ rows, n: 0 }));
  const all: R[] = [];
  while (all.length < most) {
    let first: { readonly row: R; readonly head: { n: number } } | undefined;
    for (const head of heads) {
      const row = head.rows[head.n];
      if (row && (!first || row.at > first.row.at)) first = { row, head };
    }
    if (!first) break;
    all.push(first.row);
    first.head.n++;
  }
  return all;
}

/** A row, with its host if there are several. */
export type Of<R> = R & { readonly host: string | undefined };

/** A table of rows, with a column for their hosts if there are several. */
export function tableOfHosts<R>(
  rows: readonly Of<R>[],
  isSeveral: boolean,
  headings: readonly string[],
  cells: (row: R) => Cells,
): string {
  if (!isSeveral) return toTable(headings, rows.map(cells));
  return toTable(
    ['host', ...headings],
    rows.map((row) => [row.host ?? null, ...cells(row)]),
  );
}

/** The record for output, with the name of its host if there is one. */
export const withHost = <R extends object>(record: R, host: string | undefined) =>
  host === undefined ? record : { host, ...record };

interface Wanted<A> {
  readonly id: string;
  /** Asks a host for the thing; the answer is an empty list, or one item. */
  readonly question: HostRpc<{ readonly id: string }, readonly A[]>;
  /** `No mail ID`. */
  readonly none: string;
  /** Where it is searched. */
  readonly where: string;
  mailOf(found: A): MailOfHost | undefined;
}

/**
 * Calls `show` with the thing of another host, because this one does not have it. If several have it, as after
 * a takeover, uses that of the host on which it continued. If a host does not answer, does not report it as missing.
 */
export function findOnOthers<A>(
  call: Invocation,
  io: Io,
  { id, question, none, where, mailOf }: Wanted<A>,
  show: (found: A, host: string) => number,
): Promise<number> {
  return withHosts(call, async ({ others, fault }) => {
    const asked = await Promise.all(
      others.map(async ({ row, ask }) => ({ name: row.name, asked: await ask(question, { id }) })),
    );
    const found = asked.flatMap(({ name, asked: one }) =>
      one.kind === 'answered' ? one.answer.map((answer) => ({ name, answer, mail: mailOf(answer) })) : [],
    );
    const left = duplicates(found.flatMap(({ mail }) => mail ?? []));
    const best = found.find(({ mail }) => !mail || !left.has(mail));
    if (best) return show(best.answer, best.name);
    const silent = asked.flatMap(({ name, asked: one }) =>
      one.kind === 'answered' ? [] : [`; ${name} ${whyUnanswered(one)} and may have it`],
    );
    if (silent.length > 0) io.err(printable(`${none} was found${silent.join('')}.`) + '\n');
    else io.err(printable(`${none} in ${where} of ${others.length > 0 ? 'any host' : 'this host'}.`) + '\n');
    return fault === undefined ? EXIT.failed : sayUnknown(io, fault);
  });
}

/** The caller: commands of any host, which number their calls in the store. */
const COMMANDS = 'commands';

function createCommandWire(store: Store, settings: Settings) {
  return createPeerWire({
    store,
    tokenSecret: createTokenSecret(store, tools.ids),
    member: { id: () => ownId(settings) ?? '', incarnation: COMMANDS },
    nextCall: async () => (await store.revisions.add(COMMANDS, { count: 1 }, { count: 0 })).count,
    ...tools,
    metrics: NO_METRICS,
  });
}
