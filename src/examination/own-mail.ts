import { type Check, type CheckContext, type Finding, isLocal, skipped, warning } from './finding.ts';
import { publishedAddresses } from './published.ts';
import { dkimRecord, NO_SENDERS, ownSigners, toFinding, unsignedRecords, type WantedRecord } from './records.ts';

/** The records that authenticate our own mail: notices, reports, and the reverse-path of all accounts' mail. */
export const ownMail: Check = {
  name: 'own mail',
  async *run(world) {
    if (isLocal(world)) return yield skipped('own mail', 'every listener is on loopback');
    const { settings } = world;
    for (const record of await recordsOf(world))
      if (record.type === 'TXT' && record.name !== settings.senders.spf_include)
        yield await spf(`SPF ${record.name}`, record, world);
    for (const domain of ownSigners(settings)) yield await dkim(world, domain);
  },
};

/** The records that accounts need to send mail. */
export const sending: Check = {
  name: 'sending',
  async *run(world) {
    if (isLocal(world)) return yield skipped('sending', 'every listener is on loopback');
    const { settings, resolver } = world;
    for (const record of await recordsOf(world)) {
      const { name, type } = record;
      if (type === 'MX')
        yield toFinding(`return domain ${name}`, await record.check(resolver), {
          seen: 'its MX points to this host',
          advice: toAdvice(record),
        });
      else if (name === settings.senders.spf_include) yield await spf(`SPF include ${name}`, record, world);
    }
  },
};

/** The records, for the addresses from which this host sends, as far as the DNS knows them. */
async function recordsOf(world: CheckContext): Promise<readonly WantedRecord[]> {
  const addresses = (await publishedAddresses(world.resolver, world.settings.hostname)) ?? [];
  return unsignedRecords({ ...world, addresses });
}

/** An SPF record. Nobody is advised to publish `v=spf1 -all`: it would forbid the mail of this host. */
async function spf(check: string, record: WantedRecord, { settings, resolver }: CheckContext): Promise<Finding> {
  const finding = toFinding(check, await record.check(resolver), { advice: toAdvice(record) });
  return finding.verdict === 'warning' && record.value === NO_SENDERS
    ? skipped(check, `${finding.seen}; ${settings.hostname} has no address in the DNS to put into one`)
    : finding;
}

const toAdvice = ({ name, type, value, purpose }: WantedRecord): string =>
  `Publish ${name} ${type} ${type === 'TXT' ? `"${value}"` : value} (${purpose}).`;

async function dkim({ settings, resolver, store, noStore }: CheckContext, domain: string): Promise<Finding> {
  const check = `DKIM ${domain}`;
  const advice =
    `Publish the TXT record that postern dkim show ${domain} prints. Until then, mail that ${domain} signs counts as ` +
    'unsigned.';
  if (!store) return skipped(check, noStore);
  const key = await store.domainKeys.one({ id: domain });
  if (!key) return warning(check, 'no key yet', advice);
  const { check: look } = dkimRecord(settings, key, 'signs mail from Postern itself');
  return toFinding(check, await look(resolver), { advice });
}
