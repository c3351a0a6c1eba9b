import { createSemaphore } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { allowedNetworks, isAllowedAddress, type OpenNetworks } from '../base/networks.ts';
import type { Tools } from '../base/tools.ts';
import { DIRECT_CODEC, gaveNoAnswer, type QuestionOutcome, readMx, readReply, toTextRecord } from './packets.ts';
import { createDnsClient } from './query.ts';
import {
  createDnsBudget,
  type DnsAnswer,
  type DnsBudget,
  type MxRecord,
  type RecordType,
  type Resolver,
  toQuestionName,
} from './types.ts';

/** The answer of one name server of a zone. */
export interface ServerAnswer<T> {
  /** The name of the server. */
  readonly server: string;
  /** The address that was asked; null: none. */
  readonly address: string | null;
  readonly answer: DnsAnswer<T> | { readonly kind: 'failure'; readonly reason: DirectReason };
}

/**
 * not-authoritative: it does not serve the zone · no-address: its name has none · address-unknown: the lookup of its
 * address failed · private: it has no address that we may ask.
 */
type DirectReason = 'not-authoritative' | 'no-address' | 'address-unknown' | 'private';

export type ZoneAnswers<T> =
  /** `leftOut`: servers of the zone that were not asked. */
  | { readonly zone: string; readonly servers: readonly ServerAnswer<T>[]; readonly leftOut: number }
  /** none: the name is in no zone · unknown: the DNS did not say in time which servers to ask. */
  | 'none'
  | 'unknown';

/** Asks the name servers of a zone directly, without a cache; their answers may differ. Never throws. */
export interface NameServers {
  ask(name: string, type: 'MX'): Promise<ZoneAnswers<MxRecord>>;
  ask(name: string, type: TextType): Promise<ZoneAnswers<string>>;
}

/** Types whose records are strings. */
type TextType = Exclude<RecordType, 'MX'>;

interface NameServerSettings extends OpenNetworks {
  /** 53, except in tests. */
  readonly port: number;
}

interface Deps extends Pick<Tools, 'clock' | 'log'> {
  /** Finds the zone, the names of its servers, and their addresses. */
  readonly resolver: Resolver;
  readonly ids: Pick<Ids, 'jitter'>;
}

/** Surveys at one time; others wait. */
const MAX_AT_ONCE = 8;
/** The owner of a domain chooses its servers and their number; few zones have more than this. */
const MAX_SERVERS = 8;
/** The addresses that are tried of a server: one of each family. */
const MAX_ADDRESSES = 2;
/** Questions to the resolver, for one survey. */
const MAX_LOOKUPS = 40;
const SURVEY_MS = 8000;
const SERVER_MS = 2000;

/**
 * Creates the client. The owner of a domain chooses these addresses, so only public ones are asked, and those in
 * networks that the operator allows: one question each, on port 53.
 */
export function createNameServers(settings: NameServerSettings, deps: Deps): NameServers {
  const { resolver, clock } = deps;
  const allowed = allowedNetworks(settings);
  const slots = createSemaphore(MAX_AT_ONCE);

  function ask(name: string, type: 'MX'): Promise<ZoneAnswers<MxRecord>>;
  function ask(name: string, type: TextType): Promise<ZoneAnswers<string>>;
  function ask(name: string, type: RecordType): Promise<ZoneAnswers<MxRecord> | ZoneAnswers<string>> {
    return slots.run<ZoneAnswers<MxRecord> | ZoneAnswers<string>>(async () => {
      const budget = createDnsBudget(MAX_LOOKUPS, SURVEY_MS, clock);
      return type === 'MX'
        ? survey(name, budget, {
            read: readMx,
            type,
            follow: (target) => resolver.resolve(target, type, budget),
          })
        : survey(name, budget, {
            read: toTextRecord,
            type,
            follow: (target) => resolver.resolve(target, type, budget),
          });
    });
  }

  async function survey<T>(text: string, budget: DnsBudget, question: Question<T>): Promise<ZoneAnswers<T>> {
    const name = toQuestionName(text);
    if (name === undefined) return 'none';
    const found = await findZone(name, budget, resolver);
    if (typeof found === 'string') return found;
    const { zone, servers } = found;
    return {
      zone,
      servers: await Promise.all(
        servers.slice(0, MAX_SERVERS).map((server) => askServer(server, name, budget, question)),
      ),
      leftOut: Math.max(0, servers.length - MAX_SERVERS),
    };
  }

  async function askServer<T>(
    server: string,
    name: string,
    budget: DnsBudget,
    question: Question<T>,
  ): Promise<ServerAnswer<T>> {
    // Not `addresses`: the hosts file and localhost are about this machine, not about names in a foreign zone.
    const families = await Promise.all([
      resolver.resolve(server, 'A', budget),
      resolver.resolve(server, 'AAAA', budget),
    ]);
    const known = families.flatMap((family) => (family.kind === 'records' ? family.records : []));
    const addresses = families.flatMap((family) =>
      family.kind === 'records' ? family.records.filter((one) => isAllowedAddress(one, allowed)).slice(0, 1) : [],
    );
    const failure = (reason: DirectReason) => ({ server, address: null, answer: { kind: 'failure' as const, reason } });
    if (known.length === 0)
      return failure(families.some(({ kind }) => kind === 'failure') ? 'address-unknown' : 'no-address');
    if (addresses.length === 0) return failure('private');
    let last: ServerAnswer<T> = failure('no-address');
    for (const address of addresses.slice(0, MAX_ADDRESSES)) {
      const outcome = await askAddress(address, name, question.type, budget);
      last = { server, address, answer: await toAnswer(outcome, name, question) };
      if (!gaveNoAnswer(outcome)) break;
    }
    return last;
  }

  async function askAddress(address: string, name: string, type: RecordType, budget: DnsBudget) {
    const timeoutMs = Math.min(SERVER_MS, budget.left());
    const asking = createDnsClient(
      {
        ...deps,
        codec: DIRECT_CODEC,
        servers: () => [{ address, port: settings.port }],
        newId: () => Math.floor(deps.ids.jitter() * 0x10000),
        // The metrics are about our own name servers.
        metrics: NO_METRICS,
      },
      { timeoutMs },
    );
    return asking.ask(name, type, clock.monotonic() + timeoutMs);
  }

  return frozen({ ask });
}

interface Question<T> {
  readonly type: RecordType;
  readonly read: (value: string | MxRecord) => T | undefined;
  /** Resolves the target of an alias, which another server may hold. */
  readonly follow: (target: string) => Promise<DnsAnswer<T>>;
}

async function toAnswer<T>(
  outcome: QuestionOutcome,
  name: string,
  { type, read, follow }: Question<T>,
): Promise<ServerAnswer<T>['answer']> {
  if (outcome.kind === 'failure') return outcome;
  if (!outcome.reply.authoritative) return { kind: 'failure', reason: 'not-authoritative' };
  const reading = readReply(outcome.reply, name, type, Number.MAX_SAFE_INTEGER, read);
  return reading.kind === 'answer' ? reading.answer : follow(reading.target);
}

/** Finds the zone that a name is in, and the names of its servers: those of the nearest name above it that has some. */
async function findZone(
  name: string,
  budget: DnsBudget,
  resolver: Resolver,
): Promise<{ readonly zone: string; readonly servers: readonly string[] } | 'none' | 'unknown'> {
  const labels = name.split('.');
  // An alias is not followed: the servers of its target would be found.
  const alias = await resolver.resolve(name, 'CNAME', budget);
  for (let at = alias.kind === 'records' ? 1 : 0; at < labels.length - 1; at++) {
    const zone = labels.slice(at).join('.');
    const found = await resolver.resolve(zone, 'NS', budget);
    if (found.kind === 'failure') return 'unknown';
    if (found.kind === 'records') return { zone, servers: [...new Set(found.records.map((one) => one.toLowerCase()))] };
  }
  return 'none';
}
