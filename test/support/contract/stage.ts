import { createIds } from '../../../src/base/ids.ts';
import type { DnsAnswer, DnsBudget, MxRecord, RecordType } from '../../../src/dns/types.ts';
import { createRecorder } from '../../../src/events/record.ts';
import { createKey } from '../../../src/store/rows/accounts.ts';
import { PLAIN_IP } from '../../../src/store/rows/ips.ts';
import type { MessageEventKind } from '../../../src/store/rows/messages.ts';
import type { Store } from '../../../src/store/store.ts';
import { type ApiAnswer, type ApiWorld, mailEverywhere, startApi } from '../api.ts';
import type { TestDriver } from '../database.ts';
import { zoneResolver } from '../zone.ts';

/** What a message is counted of, beside its account. */
export interface Sent {
  readonly sender?: string;
  readonly tag?: string;
  readonly template?: string;
  readonly subaccount?: string;
  readonly email?: string;
}

/** An account of its own in a running API, and what the table needs to make things in it. */
export interface Stage {
  readonly account: string;
  readonly key: string;
  readonly store: Store;
  readonly world: ApiWorld;
  /** An unused name: letters and digits, valid as any kind of name. */
  fresh(): string;
  /** Calls an operation with the account's key, or the one in `params`. */
  call(path: string, params?: object): Promise<ApiAnswer>;
  /** Calls it and answers the record; throws when it does not succeed. */
  ok(path: string, params?: object): Promise<any>;
  /** One message that the account has sent, and what happened to it: `send` alone, unless said otherwise. */
  sent(what?: Sent, events?: readonly MessageEventKind[]): Promise<void>;
  /** A dedicated address in the default pool. */
  ip(): Promise<string>;
  /** Takes all dedicated addresses away. */
  noIps(): Promise<void>;
}

let last = 0;
/** Of 198.18.0.0/15, which is for tests (RFC 2544). */
const addresses: string[] = [];

/**
 * The API with the rooms that the table needs: names under `pointed.example.com` have an A record for every address of
 * a stage.
 */
export function startStages(driver?: TestDriver, options: Parameters<typeof startApi>[0] = {}): Promise<ApiWorld> {
  const zone = mailEverywhere(zoneResolver({}));
  const pointing = (name: string, type: string): Promise<DnsAnswer<string>> | undefined =>
    type === 'A' && name.endsWith('.pointed.example.com')
      ? Promise.resolve({ kind: 'records', records: addresses, ttl: 300 })
      : undefined;
  function resolve(name: string, type: 'MX', budget?: DnsBudget): Promise<DnsAnswer<MxRecord>>;
  function resolve(name: string, type: Exclude<RecordType, 'MX'>, budget?: DnsBudget): Promise<DnsAnswer<string>>;
  function resolve(
    name: string,
    type: RecordType,
    budget?: DnsBudget,
  ): Promise<DnsAnswer<MxRecord> | DnsAnswer<string>> {
    return type === 'MX'
      ? zone.resolve(name, type, budget)
      : (pointing(name, type) ?? zone.resolve(name, type, budget));
  }
  return startApi({
    ...(driver ? { database: (log) => driver.open({ log }) } : {}),
    ...options,
    settings: { maxBadKeysPerMinute: 1_000_000, ...options.settings },
    deps: { resolver: { ...zone, resolve }, ...options.deps },
  });
}

/** Makes an account with a key of its own. */
export async function createStage(world: ApiWorld): Promise<Stage> {
  const number = 100 + ++last;
  const account = `StageAccount${String(number).padStart(10, '0')}`;
  const key = `StageKey${String(number).padStart(14, '0')}`;
  const { store, clock, lists, log } = world;
  const recorder = createRecorder({ store, clock, lists, log, outbox: { publish: () => Promise.resolve() } });
  await store.accounts.insert({ id: account, name: `stage ${number}`, number, createdAt: new Date(clock.now()) });
  await createKey(store, account, 'stage', { clock, ids: createIds(clock) }, key);
  const call = (path: string, params: object = {}) => world.call(path, { key, ...params });
  return {
    account,
    key,
    store,
    world,
    call,
    fresh: () => `n${++last}n`,
    async ok(path, params = {}) {
      const { status, body } = await call(path, params);
      if (status !== 200)
        throw new Error(`${path} ${JSON.stringify(params).slice(0, 300)} answered ${status} ${JSON.stringify(body)}`);
      return body;
    },
    async sent(
      { sender = 'ann@example.com', tag, template = null, subaccount = null, email = 'bob@example.net' } = {},
      events = ['send'],
    ) {
      const [id, at] = [(++last).toString(16).padStart(32, '0'), new Date(clock.now())];
      await recorder.begin({
        id,
        account,
        createdAt: at,
        sender,
        email,
        subject: 'Hi',
        tags: tag === undefined ? [] : [tag],
        template,
        subaccount,
        metadata: {},
        apiKey: null,
      });
      for (const kind of events) await recorder.record({ id: `${id}-${++last}`, account, message: id, kind, at });
    },
    async ip() {
      const n = addresses.length + 1;
      const ip = `198.18.${Math.floor(n / 250)}.${(n % 250) + 1}`;
      addresses.push(ip);
      await store.ips.insert({
        ...PLAIN_IP,
        id: ip,
        account,
        domain: `mail${n}.example.net`,
        homeDomain: null,
        createdAt: new Date(clock.now()),
        freeAt: null,
        claim: ip,
      });
      return ip;
    },
    async noIps() {
      while (await store.ips.remove({ account }));
    },
  };
}
