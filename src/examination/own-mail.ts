import { checkDkim } from '../dns/checks.ts';
import { keyPlace, selectorOf } from '../sending/domains/keys.ts';
import { ownSigner } from '../sending/own-signature.ts';
import { type Check, type Finding, isLocal, ok, skipped, type World, warning } from './finding.ts';

/**
 * The records that authenticate mail of our own: notices, delivery reports, and the reverse-path of all accounts' mail.
 */
export const ownMail: Check = {
  name: 'own mail',
  async *run(world) {
    if (isLocal(world)) return yield skipped('own mail', 'every listener is on loopback');
    const { hostname, mail, outbound } = world.settings;
    const author = mail.from.slice(mail.from.lastIndexOf('@') + 1);
    const addresses = await addressesOf(world);
    for (const domain of new Set([hostname, author]))
      yield await spf(world, domain, mail.relay === '' ? addresses : [], 'notices and delivery reports');
    yield await spf(
      world,
      outbound.return_domain,
      outbound.relay === '' ? addresses : [],
      'all mail that accounts send',
    );
    const signer = ownSigner({ from: mail.from, signingDomain: outbound.signing_domain });
    for (const domain of new Set([signer ?? '', outbound.signing_domain]))
      if (domain !== '') yield await dkim(world, domain);
  },
};

/** The addresses from which this host sends, as far as the DNS knows them. */
async function addressesOf({ settings, resolver }: World): Promise<readonly string[]> {
  const found = await Promise.all([
    resolver.resolve(settings.hostname, 'A'),
    resolver.resolve(settings.hostname, 'AAAA'),
  ]);
  return found.flatMap((answer) => (answer.kind === 'records' ? answer.records : []));
}

/**
 * Whether SPF passes for mail of a domain from our addresses; without any, because a relay sends it, whether there is a
 * record.
 */
async function spf(world: World, domain: string, addresses: readonly string[], what: string): Promise<Finding> {
  const check = `SPF ${domain}`;
  const advice = `Receivers check it for ${what}: publish one TXT record at ${domain}, such as "v=spf1 ip4:YOUR-ADDRESS -all".`;
  if (addresses.length === 0) {
    const answer = await world.resolver.resolve(domain, 'TXT');
    if (answer.kind === 'failure') return skipped(check, 'no DNS answer');
    const records = answer.kind === 'records' ? answer.records.filter((text) => /^v=spf1( |$)/i.test(text)) : [];
    return records.length === 1 ? ok(check, records[0] ?? '') : warning(check, 'no SPF record', advice);
  }
  const results = await Promise.all(
    addresses.map(async (address) => [address, await spfResult(world, domain, address)]),
  );
  if (results.some(([, result]) => result === 'temperror')) return skipped(check, 'no DNS answer');
  if (results.some(([, result]) => result === 'none')) return warning(check, 'no SPF record', advice);
  const bad = results.filter(([, result]) => result !== 'pass');
  return bad.length === 0
    ? ok(check, `pass for ${addresses.join(', ')}`)
    : warning(check, bad.map(([address, result]) => `${result} for ${address}`).join(', '), advice);
}

/** The result of our own check for a sender. */
export async function spfResult(
  { settings, resolver, clock }: Pick<World, 'settings' | 'resolver' | 'clock'>,
  domain: string,
  address: string,
): Promise<string> {
  // Loaded when it is needed: `serve` loads this module, as part of the command line.
  const { createAuthenticator } = await import('../inbound/verdicts/authenticate.ts');
  const { hostname, dns } = settings;
  const limits = { questionsPerMessage: dns.questions_per_message, budgetMs: dns.budget_ms, trustedSealers: [] };
  const { authenticate } = createAuthenticator({ resolver, settings: { hostname, ...limits }, clock });
  const client = { address, helo: domain, tls: null };
  const { spf } = await authenticate(
    { kind: 'memory', bytes: Buffer.from('\r\n') },
    { mailFrom: `postmaster@${domain}`, client },
  );
  return spf.result;
}

async function dkim({ settings, resolver, store, noStore }: World, domain: string): Promise<Finding> {
  const check = `DKIM ${domain}`;
  const advice =
    `Publish the TXT record that postern dkim show ${domain} prints; until then, mail signed with it counts as ` +
    'unsigned.';
  if (!store) return skipped(check, noStore);
  const key = await store.domainKeys.one({ id: domain });
  if (!key) return warning(check, 'no key yet', advice);
  const selector = selectorOf(key, { dkimSelector: settings.senders.dkim_selector });
  const { publicKey } = key;
  const found = await checkDkim(resolver, keyPlace(settings, domain, { selector, publicKey }), publicKey);
  if (found === 'unknown') return skipped(check, 'no DNS answer');
  return found.valid ? ok(check, 'valid') : warning(check, found.error, advice);
}
