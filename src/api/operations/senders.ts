import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { parseAddress } from '../../mail/addresses/address.ts';
import { RESERVED_WORDS } from '../../mail/addresses/reserved-names.ts';
import { windowsOf } from '../../mail/stats.ts';
import { mayBeSigned } from '../../sending/domains/domain-tests.ts';
import type { KeyInDns } from '../../sending/domains/sender-domains.ts';
import { isPlainMailbox } from '../../sending/notices.ts';
import { pagesByField } from '../../store/pages.ts';
import { type SenderDomainRow, senderDomainId } from '../../store/rows/domains.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { bool, domainName, readAs, record, str, strOrNull, time, timeOrNull, toDnsTest, toTime } from './fields.ts';
import {
  hourlyEntry,
  hoursOf,
  LONGEST_WINDOW_DAYS,
  SERIES_DAYS,
  senderRecord,
  toHourlyEntry,
  toSenderRecord,
  toTotals,
  totalFields,
  totalOf,
  totalsAfter,
  toWindows,
  windowsRecord,
} from './stats.ts';

const SENDERS_NOTES =
  'Returns all of them, sorted by address; `after` continues after one. An address appears with the first ' +
  'event of its mail.';
const afterAddress = optional(text(1000)).describe('continue after this address (not part of the Mandrill API)');

/** An address that mail was sent from, in lower case as in the counters. */
const address = text(1000)
  .transform(
    readAs((value) => {
      const given = value.trim();
      return parseAddress(given) && { given, key: given.toLowerCase() };
    }, 'Not a valid email address'),
  )
  .describe('the sending address; case is ignored');

/** Declares the list of senders, which has two paths. */
export function listAt(path: '/senders/list' | '/users/senders') {
  return listOperation({
    path,
    access: 'numbers',
    summary: 'Lists the addresses that the account has sent from, with their totals.',
    notes: SENDERS_NOTES,
    params: { after: afterAddress },
    returns: z.array(senderRecord),
    pages: ({ after }, { store }) =>
      mapPages(totalsAfter(store, 'sender', after?.toLowerCase()), (page) => page.map(toSenderRecord)),
  });
}

async function findSender(
  { given, key }: { readonly given: string; readonly key: string },
  { store, orRefuse }: Call<'Unknown_Sender'>,
) {
  return orRefuse(await totalOf(store, 'sender', key), 'Unknown_Sender', given);
}

const info = operation({
  path: '/senders/info',
  access: 'numbers',
  summary: 'Shows the statistics of a sender: totals, and five windows that end now.',
  notes: 'today starts at 00:00 UTC; the other windows are days of 24 hours and start on the hour.',
  params: { address },
  returns: record('sender detail', {
    address: str('the sending address'),
    created_at: time('when it was first used'),
    ...totalFields,
    stats: windowsRecord,
  }),
  errors: ['Unknown_Sender'],
  example: { address: 'news@example.com' },
  async handle({ address }, call) {
    const total = await findSender(address, call);
    const hours = await hoursOf(call.store, 'sender', total.key, LONGEST_WINDOW_DAYS, call.now());
    return {
      address: total.key,
      created_at: toTime(total.firstAt),
      ...toTotals(total),
      stats: toWindows(windowsOf(hours, call.now())),
    };
  },
});

const timeSeries = operation({
  path: '/senders/time-series',
  access: 'numbers',
  summary: 'Shows the statistics of a sender by hour, for the last 30 days.',
  notes: 'Only hours with activity, oldest first.',
  params: { address },
  returns: z.array(hourlyEntry),
  errors: ['Unknown_Sender'],
  example: { address: 'news@example.com' },
  async handle({ address }, call) {
    const { key } = await findSender(address, call);
    return (await hoursOf(call.store, 'sender', key, SERIES_DAYS, call.now())).map(toHourlyEntry);
  },
});

export const senders = [listAt('/senders/list'), info, timeSeries];

const mailbox = text(255)
  .refine((value) => !value.includes('@'), 'Please enter only the part before the @')
  .refine(
    (value) => value.includes('@') || isPlainMailbox(value),
    'Not a valid mailbox: use only letters, digits, dots and _ + = ~ & -',
  )
  .describe('the mailbox at the domain that the link is mailed to: the part before the @');

const dnsTest = (what: string) =>
  z
    .object({
      valid: bool(`whether the ${what} record is valid`),
      valid_after: timeOrNull('for a record that became valid: when its TTL has passed and it is used'),
      error: strOrNull('the problem, or null'),
    })
    .describe(`the ${what} record`);

const senderDomainRecord = record('sender domain record', {
  domain: str('the domain'),
  created_at: time('when it was added'),
  last_tested_at: timeOrNull('when its DNS last answered a check; null before the first'),
  spf: dnsTest('SPF'),
  dkim: dnsTest('DKIM'),
  verified_at: timeOrNull('when its ownership was verified in this account; null if it was not'),
  valid_signing: bool(
    'whether the domain signs mail. If it is false with two valid records, a `valid_after` has not passed, ' +
      'or the domain must be verified first (/senders/verify-domain)',
  ),
});

const NO_MAIL = 'This domain does not accept mail: it has neither a usable MX record nor an address in the DNS';

function toSenderDomainRecord(row: SenderDomainRow, now: Date) {
  return {
    domain: row.domain,
    created_at: toTime(row.createdAt),
    last_tested_at: toTime(row.lastTestedAt),
    spf: toDnsTest(row.spfValid, row.spfValidAfter, row.spfError),
    dkim: toDnsTest(row.dkimValid, row.dkimValidAfter, row.dkimError),
    verified_at: toTime(row.verifiedAt),
    valid_signing: mayBeSigned(row, now),
  };
}

const domains = listOperation({
  path: '/senders/domains',
  access: 'numbers',
  summary: 'Lists the sender domains of the account, by name.',
  notes: 'Returns all of them; `after` continues after a name.',
  params: {
    after: optional(domainName.describe('continue after this name (not part of the Mandrill API)')),
  },
  returns: z.array(senderDomainRecord),
  pages: ({ after = '' }, { store, now }) =>
    mapPages(pagesByField(store.senderDomains, 'domain', after), (page) =>
      page.map((row) => toSenderDomainRecord(row, now())),
    ),
});

const addDomain = operation({
  path: '/senders/add-domain',
  access: 'settings',
  summary: 'Adds a sender domain to the account.',
  notes:
    'Sending mail from a domain adds it too. Adding it again returns the existing record. domain-key shows the ' +
    'DNS records it needs.',
  params: { domain: domainName },
  returns: senderDomainRecord,
  example: { domain: 'mail.example.com' },
  handle: async ({ domain }, { senderDomains, now }) => toSenderDomainRecord(await senderDomains.add(domain), now()),
});

const checkDomain = operation({
  path: '/senders/check-domain',
  access: 'settings',
  summary: 'Tests the SPF and DKIM records of a sender domain; adds the domain if it is not in the account yet.',
  notes:
    'The SPF record must include this service, and the DKIM record must contain its key (domain-key shows ' +
    'both). If the DNS of the domain does not answer, the last result is kept. Domains are tested again every ' +
    'day, and every hour while they are not valid. A verified domain is also tested when mail is sent, so mail ' +
    'is signed as soon as the records are valid.',
  params: { domain: domainName },
  returns: senderDomainRecord,
  example: { domain: 'example.com' },
  handle: async ({ domain }, { senderDomains, now }) => toSenderDomainRecord(await senderDomains.check(domain), now()),
});

const verifyDomain = operation({
  path: '/senders/verify-domain',
  access: 'settings',
  summary: 'Sends a link to a mailbox at the domain, to prove that the domain belongs to the account.',
  notes:
    'The link works once, within seven days, and opens a page with a confirmation button, because mail scanners also ' +
    'follow links. Once a domain is verified in one account, mail of other accounts is signed for it only if they ' +
    'verify it as well. An address gets at most 3 such messages an hour and 10 a day; an account can send at most 20 ' +
    'a day to one domain. Free mail domains, public suffixes and domains that do not accept mail cannot be verified.',
  params: { domain: domainName, mailbox },
  returns: z.object({
    status: z.enum(['sent', 'already_verified']).describe('whether a mail was sent, or none was needed'),
    domain: str('the domain'),
    email: str('the address that the mail goes to'),
  }),
  example: { domain: 'example.com', mailbox: 'postmaster' },
  async handle({ domain, mailbox }, { senderDomains, invalid }) {
    const status = await senderDomains.verify(domain, mailbox);
    if (status === 'free-mail')
      throw invalid('domain', 'This domain belongs to a free mail provider and cannot be verified');
    if (status === 'public-suffix') throw invalid('domain', RESERVED_WORDS[status]);
    if (status === 'no-mail') throw invalid('domain', NO_MAIL);
    if (status === 'limited')
      throw invalid('mailbox', 'Too many messages were requested for this address or domain: please try again later');
    if (status === 'refused') throw invalid('mailbox', 'Not a valid mailbox');
    return { status, domain, email: `${mailbox}@${domain}` };
  },
});

const keyInDns = {
  selector: str('the DKIM selector'),
  name: str('name of the DKIM record'),
  txt: str('the value of the TXT record there'),
  cname: str('where a CNAME may point instead'),
};

const toKeyInDns = ({ selector, names, txt }: KeyInDns) => ({ selector, name: names.name, txt, cname: names.target });

const domainKey = operation({
  path: '/senders/domain-key',
  access: 'secrets',
  summary: 'Shows the DNS records that a sender domain needs; adds the domain if it is not in the account yet.',
  notes:
    'Publish the TXT record, or a CNAME to `cname` if the operator of this service maintains that record for ' +
    'you; either is enough. The SPF record of the domain must contain `spf_include`.',
  extension: true,
  params: { domain: domainName },
  returns: z.object({
    domain: str('the domain'),
    ...keyInDns,
    spf_include: str('the mechanism that the SPF record must contain'),
    spf: str('an SPF record for a domain that has none'),
    next: z
      .object(keyInDns)
      .nullable()
      .describe('during a key rotation: the record to publish in addition; its key signs once the record is found'),
    previous: z
      .object({
        ...keyInDns,
        keep_until: time('when the record may be removed'),
      })
      .nullable()
      .describe('after a rotation: the record of the previous key, as long as mail signed with it may be in transit'),
  }),
  example: { domain: 'example.com' },
  async handle({ domain }, { senderDomains }) {
    const { spfInclude, next, previous, ...present } = await senderDomains.records(domain);
    const include = `include:${spfInclude}`;
    return {
      domain,
      ...toKeyInDns(present),
      spf_include: include,
      spf: `v=spf1 ${include} ~all`,
      next: next && toKeyInDns(next),
      previous: previous && { ...toKeyInDns(previous), keep_until: toTime(previous.keepUntil) },
    };
  },
});

const deleteDomain = operation({
  path: '/senders/delete-domain',
  access: 'settings',
  summary: 'Removes a sender domain from the account.',
  notes:
    'Returns the deleted record. Sending from the domain adds it again, unverified. A verified domain is ' +
    'removed only with `confirm`.',
  params: {
    domain: domainName,
    confirm: optional(z.boolean()).describe('removes it even if it is verified (not part of the Mandrill API)'),
  },
  returns: senderDomainRecord,
  errors: ['Unknown_Domain', 'Invalid_Verified_Domain'],
  example: { domain: 'example.com' },
  async handle({ domain, confirm = false }, { store, orRefuse, refuse, now }) {
    const id = senderDomainId(store.account, domain);
    const row = orRefuse(await store.senderDomains.one({ id }), 'Unknown_Domain', domain);
    if (row.verifiedAt !== null && !confirm) throw refuse('Invalid_Verified_Domain', domain);
    // A domain that was verified meanwhile is not removed without `confirm`.
    const removed = await store.senderDomains.remove(confirm ? { id } : { id, verifiedAt: null });
    return toSenderDomainRecord(orRefuse(removed, 'Invalid_Verified_Domain', domain), now());
  },
});

export const senderDomainOperations = [domains, addDomain, checkDomain, verifyDomain, deleteDomain, domainKey];
