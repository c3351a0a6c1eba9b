import type { TestDaemon } from './daemon.ts';
import type { MailSink } from './mail-sink.ts';
import { until } from './until.ts';
import type { Zone, ZoneRecords } from './zone.ts';

/**
 * Makes the daemon sign what `domain` sends, as its owner would: publishes its key and SPF in the zone, lets them be
 * tested and answers the mail to its postmaster, which comes to the sink. `postern.test` is the daemon's public URL.
 * Answers what the zone has now.
 */
export async function verifySender(
  domain: string,
  { postern, zone, sink }: { postern: Pick<TestDaemon, 'api' | 'base'>; zone: Zone; sink: MailSink },
): Promise<ZoneRecords> {
  const key = await postern.api('/senders/domain-key', { domain });
  const records: ZoneRecords = {
    [domain]: { MX: [{ exchange: `mx.${domain}`, priority: 10 }], TXT: [key.spf] },
    [`mx.${domain}`]: { A: ['127.0.0.1'] },
    [key.name]: { TXT: [key.txt] },
  };
  zone.set(records);
  await postern.api('/senders/check-domain', { domain });
  await postern.api('/senders/verify-domain', { domain, mailbox: 'postmaster' });
  const { raw } = await until('the mail to the postmaster', () =>
    sink.mails.find(({ to }) => to.includes(`postmaster@${domain}`)),
  );
  const link = /\/verify\/[\w-]{22}/.exec(raw.replaceAll('=\r\n', '').replaceAll('=3D', '='))?.[0] ?? '';
  const { status } = await fetch(postern.base + link, { method: 'POST' });
  const row = (await postern.api('/senders/domains')).find((one: { domain: string }) => one.domain === domain);
  if (status !== 200 || row?.valid_signing !== true)
    throw new Error(`${domain} may not sign: ${status} ${JSON.stringify(row)}`);
  return records;
}
