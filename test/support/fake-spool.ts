import type { Verdicts } from '../../src/mail/envelope.ts';
import type { Outgoing } from '../../src/mail/outgoing.ts';
import type {
  AttemptRecord,
  Body,
  Delivery,
  DeliveryKind,
  DeliveryState,
  EndpointSummary,
  Message,
  QueuedDelivery,
  Report,
  Selection,
  Settlement,
  Spool,
} from '../../src/queue/delivery.ts';

/** A spool in memory: what it promises, without a disk. */
export interface FakeSpool extends Spool {
  /** Accepts a message for these deliveries, as a session would, or as an account would send it. */
  put(deliveries: readonly Delivery[], at?: number, outgoing?: Outgoing): void;
  readonly rows: Map<string, QueuedDelivery>;
  readonly history: Map<string, AttemptRecord[]>;
  readonly memories: Map<string, string>;
  readonly verdicts: Map<string, Verdicts>;
  /** What was not told yet, the oldest first. */
  readonly untold: Map<string, Report>;
  /** Calls of `due`, with their limits. */
  readonly reads: { readonly url: string; readonly limit: number }[];
  /** Makes the next calls of `settle` fail, as a full disk would. */
  failSettle(times: number): void;
  /** Lets nobody hear of fresh deliveries, as if they came before the start. */
  deaf(on: boolean): void;
}

const BYTES = new TextEncoder().encode('Subject: hello\r\n\r\nhello\r\n');

export function createFakeSpool(now: () => number): FakeSpool {
  const rows = new Map<string, QueuedDelivery>();
  const messages = new Map<string, Message>();
  const history = new Map<string, AttemptRecord[]>();
  const memories = new Map<string, string>();
  const verdicts = new Map<string, Verdicts>();
  const untold = new Map<string, Report>();
  const reads: { url: string; limit: number }[] = [];
  let listener: (fresh: readonly Delivery[]) => void = () => {};
  let failing = 0;
  let silent = false;

  const picked = (selection: Selection): QueuedDelivery[] =>
    [...rows.values()].filter((row) => matches(row, selection));
  const change = (selection: Selection, states: readonly DeliveryState[], patch: Partial<QueuedDelivery>): number => {
    const chosen = picked(selection).filter((row) => states.includes(row.state));
    for (const row of chosen) rows.set(row.id, { ...row, ...patch });
    listener([]);
    return chosen.length;
  };
  const unused = (): never => {
    throw new Error('not part of this double');
  };

  return {
    rows,
    history,
    memories,
    verdicts,
    untold,
    reads,
    put(deliveries, at = now(), outgoing = undefined) {
      for (const delivery of deliveries) {
        messages.set(delivery.messageId, {
          id: delivery.messageId,
          receivedAt: at,
          trace: '',
          verdicts: null,
          envelope: { mailFrom: 'a@example.org', client: { address: '192.0.2.1', helo: 'there', tls: null }, outgoing },
        });
        rows.set(delivery.id, {
          ...delivery,
          state: 'waiting',
          createdAt: at,
          dueAt: Math.max(at, delivery.notBefore ?? 0),
          attempts: 0,
          endedAt: null,
          budgetFrom: Math.max(at, delivery.notBefore ?? 0),
          parked: false,
          lastStatus: null,
          lastError: null,
        });
      }
      if (!silent) listener(deliveries);
    },
    failSettle(times) {
      failing = times;
    },
    deaf(on) {
      silent = on;
    },
    body: unused,
    accept: unused,
    check: unused,
    events: {
      publish: unused,
      freeze: unused,
      send: unused,
      pending: unused,
      hooks: unused,
      tallies: unused,
      forget: unused,
      redirect: unused,
      expire: unused,
      onNews() {},
    },
    hasRoom: () => true,
    backlog: (account) => picked({ account, states: ['waiting'] }).length,
    async message(id) {
      const message = messages.get(id);
      const body: Body = { kind: 'inline', bytes: BYTES };
      return message && { message: { ...message, verdicts: verdicts.get(id) ?? null }, body };
    },
    async delivery(id) {
      return rows.get(id);
    },
    async due(account, url, until, limit, except) {
      reads.push({ url, limit });
      const left = new Set(except);
      return picked({ account, url, states: ['waiting'] })
        .filter((row) => row.dueAt <= until && !left.has(row.id))
        .sort((a, b) => a.dueAt - b.dueAt)
        .slice(0, limit);
    },
    async endpoints() {
      const found = new Map<string, EndpointSummary>();
      const touch = (account: string, url: string, kind: DeliveryKind): EndpointSummary =>
        found.get(`${account}\0${url}`) ?? {
          account,
          url,
          kind,
          waiting: 0,
          nextDue: Number.POSITIVE_INFINITY,
          memory: memories.get(`${account}\0${url}`) ?? null,
        };
      for (const row of picked({ states: ['waiting'] })) {
        const known = touch(row.account, row.url, row.kind);
        found.set(`${row.account}\0${row.url}`, {
          ...known,
          waiting: known.waiting + 1,
          nextDue: Math.min(known.nextDue, row.dueAt),
        });
      }
      for (const key of memories.keys()) {
        const [account = '', url = ''] = key.split('\0');
        found.set(key, touch(account, url, 'inbound'));
      }
      return [...found.values()];
    },
    async settle(settlement: Settlement, fresh?: Verdicts) {
      if (failing > 0) {
        failing--;
        throw new Error('disk full');
      }
      const { attempt, report } = settlement;
      if (report && !untold.has(report.id)) untold.set(report.id, report);
      if (attempt) history.set(settlement.deliveryId, [...(history.get(settlement.deliveryId) ?? []), attempt]);
      const row = rows.get(settlement.deliveryId);
      if (fresh && row) verdicts.set(row.messageId, fresh);
      if (row?.state !== 'waiting') return;
      rows.set(row.id, {
        ...row,
        state: settlement.state,
        dueAt: settlement.dueAt,
        parked: settlement.parked,
        attempts: row.attempts + (attempt ? 1 : 0),
        endedAt: settlement.state === 'waiting' ? null : settlement.at,
        lastStatus: attempt ? attempt.status : row.lastStatus,
        lastError: attempt ? attempt.error : row.lastError,
      });
    },
    async keepEndpoint({ account, url }, memory) {
      if (memory === null) memories.delete(`${account}\0${url}`);
      else memories.set(`${account}\0${url}`, memory);
    },
    lastTime: async () => ({ memory: null, newest: null }),
    keepTime: async () => {},
    async attempts(id) {
      return history.get(id) ?? [];
    },
    async list(selection, limit) {
      return picked(selection).slice(0, limit);
    },
    async count(selection) {
      const counts = { waiting: 0, delivered: 0, dead: 0, dropped: 0 };
      for (const row of picked(selection)) counts[row.state]++;
      return counts;
    },
    async retry(selection, at) {
      return change(selection, ['waiting'], { dueAt: at });
    },
    async reschedule(selection, at) {
      return change(selection, ['waiting'], { dueAt: at, budgetFrom: at });
    },
    async drop(selection, at) {
      return change(selection, ['waiting', 'dead'], { state: 'dropped', endedAt: at });
    },
    async replay(selection, at) {
      return change(selection, ['dead', 'delivered', 'dropped'], {
        state: 'waiting',
        dueAt: at,
        budgetFrom: at,
        attempts: 0,
        parked: false,
        endedAt: null,
      });
    },
    async redirect(routeId, url) {
      return change({ routeIds: [routeId] }, ['waiting', 'dead'], { url });
    },
    async purge() {
      return 0;
    },
    async reports(limit) {
      return [...untold.values()].slice(0, limit);
    },
    async reported(ids) {
      for (const id of ids) untold.delete(id);
    },
    onChange(heard) {
      listener = heard;
    },
    async close() {},
  };
}

function matches(
  row: QueuedDelivery,
  { ids, account, routeIds, url, recipient, states, from, to }: Selection,
): boolean {
  return (
    (ids?.includes(row.id) ?? true) &&
    (account === undefined || row.account === account) &&
    (routeIds?.includes(row.routeId) ?? true) &&
    (url === undefined || row.url === url) &&
    (recipient === undefined || row.recipient === recipient) &&
    (states?.includes(row.state) ?? true) &&
    (from === undefined || row.createdAt >= from) &&
    (to === undefined || row.createdAt < to)
  );
}
