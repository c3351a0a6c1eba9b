import { join } from 'node:path';
import { isLoopback } from '../base/networks.ts';
import { ownNames } from '../composition/slices.ts';
import { checkPtr, checkSpf, toReverseName } from '../dns/checks.ts';
import { createHosts } from '../dns/system.ts';
import { createReservedNames, RESERVED_WORDS } from '../mail/addresses/reserved-names.ts';
import { memberOf } from '../mail/addresses/wildcard-domain.ts';
import { type InboundDomainRow, nameOf } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { type Check, type CheckContext, type Finding, fault, isLocal, ok, skipped, warning } from './finding.ts';
import { publishedAddresses } from './published.ts';
import { dkimRecord, domainPages, mxRecord, toFinding } from './records.ts';

/** Forward and reverse DNS of hostname match; many servers refuse mail from hosts where they do not. */
export const hostName: Check = {
  name: 'host name',
  async *run(world) {
    const { settings, resolver } = world;
    const { hostname } = settings;
    if (isLocal(world))
      return yield skipped('host name', `${hostname}; not checked, because every listener is on loopback`);
    if (!hostname.includes('.')) {
      return yield fault(
        'host name',
        `"${hostname}" is not a fully qualified name`,
        'Set hostname to the fully qualified name of this machine, such as mx1.example.com.',
      );
    }
    const addresses = await publishedAddresses(resolver, hostname);
    if (addresses === undefined) return yield skipped('host name', `no DNS answer for ${hostname}`);
    if (addresses.length === 0)
      return yield fault(
        'host name',
        `${hostname} has no address in the DNS`,
        `Publish an A record (and AAAA, if you have IPv6) for ${hostname}.`,
      );
    const local = addresses.filter(isLoopback);
    if (local.length > 0)
      return yield fault(
        'host name',
        `${hostname} resolves to ${local.join(', ')}, this machine itself`,
        'Publish its public address. If it is published already, the resolver reads /etc/hosts: correct it there.',
      );
    yield ok('host name', `${hostname} has ${addresses.join(', ')}`);
    yield* await Promise.all(addresses.map((ip) => reverse(ip, hostname, resolver)));
  },
};

/** The hosts file, which Postern and most programs prefer to the DNS, agrees with it about our own names. */
export const hostsFile: Check = {
  name: 'hosts file',
  async *run(world) {
    const { settings, resolver, root } = world;
    if (isLocal(world)) return yield skipped('hosts file', 'every listener is on loopback');
    const path = join(root, 'etc/hosts');
    const hosts = createHosts(path, world.clock);
    const urls = [settings.public_url, settings.console.mail_origin].filter((url) => url !== '');
    const names = new Set([settings.hostname, ...urls.map((url) => new URL(url).hostname)]);
    let found = 0;
    for (const name of names) {
      const listed = await hosts.find(name.toLowerCase());
      if (listed === undefined) continue;
      const published = await publishedAddresses(resolver, name);
      const wrong = listed.filter((address) => !published?.includes(address));
      if (published === undefined || wrong.length === 0) continue;
      found++;
      yield warning(
        'hosts file',
        `${path} says ${wrong.join(', ')} for ${name}; the DNS says ${published.join(', ') || 'nothing'}`,
        "Programs on this host use that address: mail to your own domains fails, and so do checks of customers' " +
          `domains. Set it to ${published.join(' and ') || 'the public address'}, or remove the name.`,
      );
    }
    if (found === 0) yield ok('hosts file', 'agrees with the DNS about the names of this host');
  },
};

/** Whether the PTR record of an address names this host. */
export async function reverse(ip: string, hostname: string, resolver: CheckContext['resolver']): Promise<Finding> {
  const check = `reverse DNS ${ip}`;
  const found = await checkPtr(resolver, ip, hostname);
  if (found === 'unknown') return skipped(check, 'no DNS answer');
  if (found.valid) return ok(check, `points to ${hostname}`);
  const answer = await resolver.resolve(toReverseName(ip) ?? '', 'PTR');
  return fault(
    check,
    answer.kind === 'records' ? `points to ${answer.records.join(', ')}, not ${hostname}` : 'no PTR record',
    `Ask your provider to set its PTR record to ${hostname}.`,
  );
}

/** Mail to postmaster is forwarded to a person. */
export const postmaster: Check = {
  name: 'postmaster',
  async *run(world) {
    const check = 'postmaster';
    const { postmaster: address } = world.settings.smtp;
    if (address !== '') return yield ok(check, `mail to postmaster is forwarded to ${address}`);
    if (isLocal(world)) return yield skipped(check, 'every listener is on loopback');
    return yield warning(
      check,
      'mail to postmaster stays in the queue, where nobody reads it',
      'Set smtp.postmaster to a mailbox that you read: other operators report problems there.',
    );
  },
};

/** Most domains of each kind that are checked: there may be 100,000, and the daily tests cover the rest. */
const MOST = 500;
/** Domains checked at one time, to spare the resolver. */
const AT_ONCE = 20;

/** The MX records of inbound domains point to this host. */
export const inboundDomainsCheck: Check = {
  name: 'inbound domains',
  async *run({ settings, resolver, store, noStore }) {
    if (!store) return yield skipped('inbound domains', noStore);
    const rows: InboundDomainRow[] = [];
    for await (const page of domainPages(store)) {
      rows.push(...page);
      if (rows.length > MOST) break;
    }
    if (rows.length === 0) return yield skipped('inbound domains', 'none yet; add one: postern domain add DOMAIN');
    const { hostname } = settings;
    const one = settings.inbound.mx_hosts.length === 0 ? hostname : 'one of our hosts';
    yield* each(rows, async ({ id }) => {
      const record = mxRecord({ settings }, memberOf(nameOf({ id })), 'receiving', 'routes its mail to this host');
      const advice =
        `Publish an MX record for ${id} that points to ${hostname}, or list the hosts that share the work in ` +
        'inbound.mx_hosts.';
      return [toFinding(`MX ${id}`, await record.check(resolver), { seen: `points to ${one}`, advice, bad: fault })];
    });
    yield* cut(rows.length, 'inbound domains');
  },
};

/** No account owns a reserved domain, added before it was reserved: its mail may be meant for the operator. */
export const reservedDomains: Check = {
  name: 'reserved domains',
  async *run({ settings, store, noStore }) {
    if (!store) return yield skipped('reserved domains', noStore);
    const names = createReservedNames(ownNames(settings));
    const isAlone = (await store.accounts.many({}, { limit: 2 })).length < 2;
    let found = 0;
    for await (const page of domainPages(store))
      for (const { id, account } of page) {
        const reserved = names.whyReserved(id);
        if (reserved === undefined) continue;
        const seen = `owned by account ${account}: ${RESERVED_WORDS[reserved]}`;
        const advice =
          `Its mail goes to that account. To stop this, run postern domain remove ${id}. After that, no account can ` +
          'add it again.';
        yield (isAlone ? warning : fault)(`inbound domain ${id}`, seen, advice);
        if (++found === MOST) return;
      }
    if (found === 0) yield ok('reserved domains', 'no account owns a reserved domain');
  },
};

/** SPF and DKIM records of sender domains are valid. */
export const senderDomainsCheck: Check = {
  name: 'sender domains',
  async *run(world) {
    const { store, noStore } = world;
    if (!store) return yield skipped('sender domains', noStore);
    const rows = await store.senderDomains.many({}, { limit: MOST + 1 });
    const domains = [...new Set(rows.map(({ domain }) => domain))];
    if (domains.length === 0) return yield skipped('sender domains', 'none yet');
    const verified = new Set(rows.filter(({ verifiedAt }) => verifiedAt !== null).map(({ domain }) => domain));
    yield* each(domains, async (domain) => {
      const records = await senderRecords(world, store, domain);
      // Without valid records, unsigned mail is expected.
      const complete = records.every(({ verdict }) => verdict === 'ok');
      return complete ? [...records, signing(world, domain, verified.has(domain))] : records;
    });
    yield* cut(domains.length, 'sender domains');
  },
};

/** Whether mail From a domain with valid records is signed by it. */
function signing({ settings }: CheckContext, domain: string, verified: boolean): Finding {
  const check = `signing ${domain}`;
  const own = settings.outbound.signing_domain;
  if (verified || domain === own) return ok(check, 'mail From it is signed');
  return warning(
    check,
    `not verified by any account: mail From it is ${own === '' ? 'unsigned' : `signed only by ${own}`}`,
    `If it is yours, run postern sender add ${domain}; otherwise its owner must verify it with /senders/verify-domain.`,
  );
}

async function senderRecords(
  { settings, resolver }: CheckContext,
  store: Store,
  domain: string,
): Promise<readonly Finding[]> {
  const include = settings.senders.spf_include;
  const spf = toFinding(`SPF ${domain}`, await checkSpf(resolver, domain, include), {
    advice: `Ask its owner to add include:${include} to the SPF record of ${domain}.`,
  });
  const key = await store.domainKeys.one({ id: domain });
  if (!key) return [spf, skipped(`DKIM ${domain}`, 'no key requested yet (/senders/check-domain)')];
  const { name, check } = dkimRecord(settings, key, 'signs mail From it');
  const advice = `Ask its owner to publish the TXT record shown by /senders/check-domain at ${name}.`;
  return [spf, toFinding(`DKIM ${domain}`, await check(resolver), { advice })];
}

/** Checks the first items, some at a time, and yields the findings in their order. */
async function* each<T>(items: readonly T[], look: (item: T) => Promise<readonly Finding[]>): AsyncGenerator<Finding> {
  const looked = items.slice(0, MOST);
  for (let from = 0; from < looked.length; from += AT_ONCE)
    for (const findings of await Promise.all(looked.slice(from, from + AT_ONCE).map(look))) yield* findings;
}

/** A finding if there were more domains than were checked. */
function cut(domains: number, check: string): readonly Finding[] {
  return domains > MOST ? [skipped(check, `more than ${MOST}; only the first ${MOST} were checked`)] : [];
}
