import { z } from 'zod';
import { systemClock, toTimestamp } from '../base/clock.ts';
import { toAsciiDomain } from '../mail/addresses/address.ts';
import { isFreeMail, isPublicSuffix, RESERVED_WORDS } from '../mail/addresses/reserved-names.ts';
import { mayBeSigned } from '../sending/domains/domain-tests.ts';
import { proveSenderDomain } from '../store/rows/domains.ts';
import { accountOption, accountsOf, onlyAccount, theAccount } from './account.ts';
import { type Command, UsageError } from './command.ts';
import { runWithStore, withOperations, withStore } from './open.ts';

/** The fields of the answer of /senders/domain-key that are shown. */
const KEY = z.object({
  name: z.string(),
  txt: z.string(),
  cname: z.string(),
  spf_include: z.string(),
  spf: z.string(),
});
/** Those of /senders/check-domain. */
const TEST = z.object({ valid: z.boolean(), valid_after: z.string().nullable(), error: z.string().nullable() });
const CHECKED = z.object({ domain: z.string(), spf: TEST, dkim: TEST, valid_signing: z.boolean() });

interface Shown extends z.output<typeof CHECKED> {
  readonly records: z.output<typeof KEY>;
}

/** The domain given on the command line, if an account can own it. */
function ownable(word: string): string {
  const domain = toAsciiDomain(word.trim());
  if (!domain?.includes('.')) throw new UsageError(`"${word}" is not a domain name`);
  if (isPublicSuffix(domain)) throw new UsageError(`${domain}: ${RESERVED_WORDS['public-suffix']}`);
  if (isFreeMail(domain)) throw new UsageError(`${domain}: ${RESERVED_WORDS['free-mail']}`);
  return domain;
}

export const senderAdd: Command = {
  args: 'DOMAIN',
  options: { account: accountOption },
  notes:
    'For your own domains: ownership is not checked. Prints the DKIM and SPF records to publish.\n' +
    'A running daemon signs mail From the domain within seconds after both are in the DNS. Run the command ' +
    'again to check.\n\n' +
    '  postern sender add example.com',
  async run(call) {
    const domain = ownable(call.word('DOMAIN'));
    const { settings } = call.settings();
    const account = await withStore(settings, async (store) => {
      const row = await theAccount(store, call);
      await proveSenderDomain(store, row.id, domain, new Date(systemClock.now()));
      return row;
    });
    const shown = await withOperations(settings, async (run) => ({
      ...CHECKED.parse(await run('/senders/check-domain', account, { domain })),
      records: KEY.parse(await run('/senders/domain-key', account, { domain })),
    }));
    call.print(
      [shown],
      () => `${domain} is a verified sender domain of account ${account.name}.\n\n${nextStep(shown)}`,
    );
  },
};

/** The records that are missing in the DNS, and the next step. */
function nextStep({ domain, spf, dkim, valid_signing: signs, records }: Shown): string {
  if (signs) return `Both records are in the DNS. Mail From ${domain} is signed from now on.\n`;
  if (dkim.valid && spf.valid)
    return (
      `Both records are in the DNS. Mail From ${domain} is signed from ` +
      `${[dkim.valid_after ?? '', spf.valid_after ?? ''].sort().at(-1)} UTC, when the old records have left DNS ` +
      'caches.\n'
    );
  const key =
    `DKIM: ${dkim.error}\n\n  ${records.name}  TXT  "${records.txt}"\n  or a CNAME to ${records.cname}, if you ` +
    'publish the TXT record there\n\n';
  const include =
    `SPF: ${spf.error}\n\n  ${domain}  TXT  "${records.spf}"\n  or add ${records.spf_include} to its existing ` +
    'SPF record\n\n';
  return (
    `Mail From ${domain} is signed once these records are in the ` +
    `DNS:\n\n${dkim.valid ? '' : key}${spf.valid ? '' : include}Then check again: postern sender add ${domain}\n`
  );
}

export const senderList: Command = {
  options: { account: onlyAccount },
  run: runWithStore(async ({ call, store }) => {
    const { names, only } = await accountsOf(store, call);
    const rows = await store.senderDomains.many(only, { sort: 'id' });
    const shown = rows.map((row) => ({
      domain: row.domain,
      account: row.account,
      account_name: names.get(row.account) ?? null,
      verified_at: row.verifiedAt && toTimestamp(row.verifiedAt),
      spf: row.spfValid,
      dkim: row.dkimValid,
      valid_signing: mayBeSigned(row, new Date(systemClock.now())),
    }));
    const word = (valid: boolean | null) => (valid === null ? 'not tested' : valid ? 'valid' : 'not valid');
    call.table(shown, {
      none: 'No sender domains. Add one: postern sender add DOMAIN',
      headings: ['domain', 'account', 'verified', 'SPF', 'DKIM', 'signs mail'],
      cells: (row) => [
        row.domain,
        row.account_name ?? row.account,
        row.verified_at ?? 'no',
        word(row.spf),
        word(row.dkim),
        row.valid_signing ? 'yes' : 'no',
      ],
    });
  }),
};
