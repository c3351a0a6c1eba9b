import { isMarkedAsUntransferable } from 'node:worker_threads';
import { isTight } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';
import type { EventName, Fields, Log } from '../../base/log.ts';
import type { PortCaller } from '../../base/port.ts';
import type { Tools } from '../../base/tools.ts';
import type { AcceptResult, Arrival, Match, RoutedRecipient } from '../../inbound/types.ts';
import type { Note, Notes } from '../../journal/types.ts';
import type { Address } from '../../mail/addresses/address.ts';
import type { Body } from '../../queue/delivery.ts';
import type { Blobs } from '../../queue/disk/bodies.ts';
import {
  type Admission,
  type AdmissionResult,
  createLagProbe,
  type LocalSlot,
  type SessionActivity,
  type SessionSlot,
} from '../admission.ts';
import type { InboundRcptResult, LocalBackend, SmtpBackend } from '../backend.ts';
import { nameOfRefusal, REFUSALS, type RefusalName, type Reply } from '../replies.ts';
import type { SessionMeters } from '../session-log.ts';

// Both ends of the requests from session threads to the main thread. The main thread counts and decides everything, so
// limits and metrics do not depend on the number of threads. Threads collect bodies and hand them over.

/** The requests and messages of a thread. It numbers the slots of its sessions; refusals are sent by name. */
interface BackendCalls {
  enter(n: number, client: string, behindProxy: boolean, busy: boolean): RefusalName | null;
  nameClient(n: number, client: string): RefusalName | null;
  doing(n: number, what: SessionActivity): void;
  leave(n: number): void;
  route(address: Address, sender: string): Promise<RouteAnswer>;
  accept(messageId: string, arrival: Arrival, routed: readonly RoutedRecipient[], body: Body): Promise<AcceptResult>;
  opened(): void;
  closed(): void;
  secured(version: string | null): void;
  refused(name: RefusalName): void;
  log(level: 'info' | 'debug', event: EventName, fields: Fields): void;
  note(entry: Note): void;
  /** Answered after all earlier messages. */
  flush(): void;
}

type RouteAnswer =
  | { readonly match: Match }
  | { readonly match?: undefined; readonly refused: RefusalName; readonly owner: string | undefined };

/**
 * Indexes in shared memory that the main thread writes, so that sessions need no request: whether the disk has room,
 * and whether most slots are taken.
 */
const ROOM = 0;
const CROWDED = 1;
export const FLAGS_BYTES = 2 * Int32Array.BYTES_PER_ELEMENT;

export function writeFlags(flags: SharedArrayBuffer, backend: LocalBackend): void {
  const cells = new Int32Array(flags);
  Atomics.store(cells, ROOM, Number(backend.hasRoom()));
  Atomics.store(cells, CROWDED, Number(backend.admission.crowded()));
}

/** The main thread's end for one thread. */
export function createBackendServer(
  {
    backend,
    meters,
    log,
    notes,
  }: { readonly backend: LocalBackend; readonly meters: SessionMeters; readonly log: Log; readonly notes: Notes },
  flags: SharedArrayBuffer,
  /** Tells the thread that a session has lost its slot to another client. */
  taken: (n: number) => void,
) {
  const slots = new Map<number, LocalSlot>();
  let open = 0;
  let gone = false;
  const look = () => writeFlags(flags, backend);
  return frozen({
    table: frozen({
      enter(n, client, behindProxy, busy) {
        if (gone) return named(REFUSALS.shutdown);
        look();
        const { admission } = backend;
        const entry = busy ? admission.refuse(REFUSALS.busy, client) : admission.enter(client, behindProxy);
        if (entry.refused) return named(entry.refused);
        slots.set(n, entry.slot);
        entry.slot.onEvicted(() => {
          slots.delete(n);
          taken(n);
        });
        return null;
      },
      nameClient(n, client) {
        const refused = slots.get(n)?.nameClient(client);
        if (!refused) return null;
        slots.delete(n);
        return named(refused);
      },
      doing(n, what) {
        slots.get(n)?.doing(what);
      },
      leave(n) {
        slots.get(n)?.leave();
        slots.delete(n);
      },
      async route(address, sender) {
        look();
        const found = await backend.route(address, sender);
        return found.refused ? { refused: named(found.refused), owner: found.owner } : { match: found.value };
      },
      accept: (messageId, arrival, routed, body) => backend.acceptance.accept(messageId, arrival, routed, body),
      opened() {
        if (gone) return;
        open++;
        meters.opened();
      },
      closed() {
        if (gone) return;
        open--;
        meters.closed();
      },
      secured: meters.secured,
      refused: (name) => meters.refused(REFUSALS[name]),
      log: (level, event, fields) => log[level](event, fields),
      note: notes.note,
      flush() {},
    } satisfies BackendCalls),
    /** Number of open sessions of the thread. */
    sessions: () => open,
    /** Releases the sessions and slots of a thread that has ended. */
    release() {
      gone = true;
      for (; open > 0; open--) meters.closed();
      for (const slot of slots.values()) slot.leave();
      slots.clear();
    },
  });
}

function named(refusal: Reply): RefusalName {
  return nameOfRefusal(refusal) ?? 'fault';
}

interface RemoteParts extends Pick<Tools, 'clock' | 'ids'> {
  readonly asker: PortCaller;
  readonly flags: SharedArrayBuffer;
  readonly maxLoopLagMs: number;
  /** Where bodies are collected. */
  readonly bodies: Blobs;
  /** Writes at once. */
  readonly log: Log;
}

type Ask = <K extends keyof BackendCalls>(
  name: K,
  ...args: Parameters<BackendCalls[K]>
) => Promise<Awaited<ReturnType<BackendCalls[K]>>>;
type Tell = <K extends keyof BackendCalls>(name: K, ...args: Parameters<BackendCalls[K]>) => void;

/** The thread's end: a backend, meters and a log that call the main thread. */
export function createRemoteBackend(parts: RemoteParts) {
  const { asker, flags } = parts;
  const cells = new Int32Array(flags);
  const ask: Ask = (name, ...args) => asker.ask(name, args);
  const tell: Tell = (name, ...args) => asker.tell(name, args);

  const { admission, taken } = createRemoteAdmission(parts, ask, tell, () => Atomics.load(cells, CROWDED) !== 0);
  return {
    /** A session has lost its slot to another client. */
    taken,
    backend: frozen<SmtpBackend>({
      admission,
      hasRoom: () => Atomics.load(cells, ROOM) !== 0,
      async route(address, sender): Promise<InboundRcptResult> {
        const answer = await ask('route', address, sender);
        return answer.match ? { value: answer.match } : { refused: REFUSALS[answer.refused], owner: answer.owner };
      },
      acceptance: createRemoteAcceptance(parts),
    }),
    meters: frozen<SessionMeters>({
      opened: () => tell('opened'),
      closed: () => tell('closed'),
      secured: (version) => tell('secured', version),
      refused: (reply) => tell('refused', named(reply)),
      certificate() {},
    }),
    notes: frozen<Notes>({ note: (entry) => tell('note', entry) }),
    // Info and debug lines travel with the requests; the others are written at once.
    log: frozen<Log>({
      ...parts.log,
      info: (event, fields = {}) => tell('log', 'info', event, fields),
      debug: (event, fields = {}) => tell('log', 'debug', event, fields),
    }),
  };
}

function createRemoteAdmission(
  { maxLoopLagMs, clock }: RemoteParts,
  ask: Ask,
  tell: Tell,
  crowded: Admission['crowded'],
) {
  // The lag of this thread; the main thread measures its own.
  const lag = createLagProbe(maxLoopLagMs, clock);
  /** The slots of the sessions of this thread, by number. */
  const slots = new Map<number, RemoteSlot>();
  let last = 0;

  function slotOf(n: number, mine: RemoteSlot): SessionSlot {
    return frozen({
      async nameClient(name) {
        const reason = await ask('nameClient', n, name);
        if (reason !== null) slots.delete(n);
        return reason === null ? undefined : REFUSALS[reason];
      },
      doing(what) {
        mine.doing = what;
        tell('doing', n, what);
      },
      onEvicted(end) {
        mine.end = end;
        if (mine.taken) end();
      },
      leave() {
        if (slots.delete(n)) tell('leave', n);
      },
    });
  }

  const admission = frozen<Admission>({
    open: lag.start,
    close: lag.stop,
    crowded,
    async enter(client, behindProxy): Promise<AdmissionResult> {
      const n = ++last;
      const mine: RemoteSlot = { taken: false, doing: 'waiting', end: () => {} };
      slots.set(n, mine);
      const refused = await ask('enter', n, client, behindProxy, lag.lagging());
      if (refused === null) return { slot: slotOf(n, mine) };
      slots.delete(n);
      return { refused: REFUSALS[refused] };
    },
  });
  return {
    admission,
    taken(n: number) {
      const mine = slots.get(n);
      if (!mine) return;
      // It began a message before the main thread knew: it goes on, and there is one session too many until it ends.
      if (mine.doing === 'data') return;
      mine.taken = true;
      mine.end();
    },
  };
}

/** A slot of a session on this thread. */
interface RemoteSlot {
  taken: boolean;
  doing: SessionActivity;
  end: () => void;
}

function createRemoteAcceptance({ asker, bodies, ids }: RemoteParts): SmtpBackend['acceptance'] {
  return frozen({
    begin() {
      const messageId = ids.message();
      return { messageId, body: bodies.writer(messageId) };
    },
    async accept(messageId, arrival, routed, body): Promise<AcceptResult> {
      const { given, transfer } = handOver(body);
      const result: AcceptResult = await asker.ask('accept', [messageId, arrival, routed, given], transfer);
      if (result.outcome === 'accepted') bodies.claim(body);
      return result;
    },
  });
}

/** Transfers the memory of a body without a copy; part of a larger buffer is copied first. */
function handOver(body: Body): { readonly given: Body; readonly transfer: readonly ArrayBuffer[] } {
  if (body.kind === 'file') return { given: body, transfer: [] };
  const { buffer } = body.bytes;
  if (buffer instanceof ArrayBuffer && isTight(body.bytes) && !isMarkedAsUntransferable(buffer))
    return { given: body, transfer: [buffer] };
  const bytes = new Uint8Array(body.bytes);
  return { given: { kind: 'memory', bytes }, transfer: [bytes.buffer] };
}
