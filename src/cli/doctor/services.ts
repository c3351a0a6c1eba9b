import { parseServer, systemServers } from '../../dns/servers.ts';
import { type Check, type Finding, fault, ok, skipped, warning } from './finding.ts';

/** Forwarders for everybody: lists that tell good addresses from bad refuse them, and so do some name servers. */
const PUBLIC_FORWARDERS = new Map([
  ['8.8.8.8', 'Google'],
  ['8.8.4.4', 'Google'],
  ['2001:4860:4860::8888', 'Google'],
  ['2001:4860:4860::8844', 'Google'],
  ['1.1.1.1', 'Cloudflare'],
  ['1.0.0.1', 'Cloudflare'],
  ['2606:4700:4700::1111', 'Cloudflare'],
  ['2606:4700:4700::1001', 'Cloudflare'],
  ['9.9.9.9', 'Quad9'],
  ['149.112.112.112', 'Quad9'],
  ['2620:fe::fe', 'Quad9'],
  ['208.67.222.222', 'OpenDNS'],
  ['208.67.220.220', 'OpenDNS'],
]);

/** The resolver answers, and does not make answers up. */
export const nameServers: Check = {
  name: 'resolver',
  async run({ settings, resolver }) {
    const servers = settings.dns.servers.length > 0 ? settings.dns.servers : systemServers();
    const check = `resolver ${servers.join(', ')}`;
    // com is always there; .invalid never is (RFC 6761 section 6.4), and a resolver without a network knows that too.
    const [there, absent] = await Promise.all([
      resolver.resolve('com', 'NS'),
      resolver.resolve('postern-doctor.invalid', 'A'),
    ]);
    const advice =
      'Without one SPF, DKIM and DMARC say temperror, and no mail can be sent. Install a resolver on this host (apt install unbound) and set dns.servers to 127.0.0.1:53.';
    if (there.kind === 'failure') return [fault(check, `gives no answer (${there.reason})`, advice)];
    if (absent.kind === 'records')
      return [
        fault(
          check,
          `has an address for a name that cannot be (${absent.records.join(', ')})`,
          `It makes answers up. ${advice}`,
        ),
      ];
    const forwarders = servers.flatMap((server) => PUBLIC_FORWARDERS.get(parseServer(server)?.address ?? '') ?? []);
    if (forwarders.length > 0)
      return [
        warning(
          check,
          `a public forwarder (${[...new Set(forwarders)].join(', ')})`,
          'It counts the questions of many together and is refused by some servers: a resolver on this host is better.',
        ),
      ];
    return [ok(check, 'answers')];
  },
};

/** The store takes writes, and keeps them. */
export const storeCheck: Check = {
  name: 'store',
  async run({ settings, store, noStore }) {
    const mongo = settings.store.url !== '' || settings.store.url_file !== '';
    const check = mongo ? 'store (MongoDB)' : 'store (embedded)';
    if (!store) return [skipped(check, noStore)];
    const from = performance.now();
    await store.ping();
    const ms = Math.round(performance.now() - from);
    const seen = `a write is durable after ${ms} ms${mongo ? ', on a majority of its members' : ''}`;
    return [
      ms > settings.store.timeout_ms / 2
        ? warning(check, seen, 'That is close to store.timeout_ms: see what keeps it busy.')
        : ok(check, seen),
      ...(await accounts(store)),
    ];
  },
};

async function accounts(store: {
  readonly accounts: { many(filter: object, options: object): Promise<readonly unknown[]> };
}): Promise<readonly Finding[]> {
  const found = await store.accounts.many({}, { limit: 1 });
  return found.length > 0
    ? []
    : [warning('accounts', 'there are none', 'postern account create makes one, with a key.')];
}

/** What the running daemon says of itself. */
export const readiness: Check = {
  name: 'daemon',
  async run({ settings }) {
    const { host, port } = settings.http.listen;
    const place = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : host.includes(':') ? `[${host}]` : host;
    const url = `http://${place}:${port}/readyz`;
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(5000), redirect: 'error' });
      const text = (await answer.text()).slice(0, 500);
      return [
        answer.ok
          ? ok('daemon', `${url}: takes mail`)
          : fault('daemon', `${url}: ${text}`, 'What is not "ok" there says where to look.'),
      ];
    } catch {
      return [
        fault(
          'daemon',
          `${url} gives no answer`,
          'Start the daemon (systemctl start postern), and look at its log. Behind a socket unit http.listen may be elsewhere.',
        ),
      ];
    }
  },
};
