import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { must } from '../package/run.ts';
import { startPostfix } from '../postfix.ts';
import { until } from '../until.ts';
import { makeCertificate } from './certificates.ts';
import { type Names, txt } from './names.ts';
import { type Network, v4, v6 } from './network.ts';

// The mail servers of other people: one that sends to the host under test, and one that receives from it and judges.

/** The domain whose mail the sending server signs and sends. */
export const SENDER = 'sender.example';
/** The domain of the receiving server. */
export const RECEIVER = 'there.example';

/** A mail in a mailbox of the receiving server. */
export interface Arrived {
  readonly file: string;
  readonly text: string;
}

export interface MailServers {
  /** Hands a mail from `ann@sender.example` to the sending server, and waits for what became of it: a line of its log. */
  send(to: string, subject: string): Promise<string>;
  /** Hands the host under test a mail in the name of `ann@sender.example`, from an address that may not. */
  forge(to: string, subject: string): Promise<void>;
  /** Whether the host under test takes mail for an address. */
  accepts(to: string): Promise<boolean>;
  /** The mails for which `is` holds, once there is one. */
  arrived(what: string, is: (text: string) => boolean): Promise<Arrived>;
  stop(): Promise<void>;
}

interface Given {
  readonly network: Network;
  readonly names: Names;
  /** What a certificate of the host under test must go back to. */
  readonly trusted: readonly string[];
  /** Further domains whose mailboxes are at the receiving server. */
  readonly mailboxes: readonly string[];
}

export async function startMailServers(
  dir: string,
  { network, names, trusted, mailboxes }: Given,
): Promise<MailServers> {
  await mkdir(dir, { mode: 0o755 });
  const roots = join(dir, 'roots.pem');
  await writeFile(roots, trusted.join('\n'));
  await startFilters(dir, { network, names });
  const common = { inet_protocols: 'all', smtp_dns_support_level: 'enabled', relayhost: '' };
  const [sending, receiving] = [join(dir, 'sending'), join(dir, 'receiving')];
  for (const each of [sending, receiving]) await mkdir(each);
  const listen = (party: 'sender' | 'receiver') => [`${v4(party)}:25`, `[${v6(party)}]:25`];
  const sender = await startPostfix(sending, {
    listen: listen('sender'),
    enter: network.outside,
    main: {
      ...common,
      myhostname: `mx.${SENDER}`,
      inet_interfaces: `${v4('sender')} ${v6('sender')}`,
      mynetworks: `${v4('sender')} [${v6('sender')}]`,
      smtp_bind_address: v4('sender'),
      smtp_bind_address6: v6('sender'),
      // As servers do that take certificates seriously (MTA-STS): no mail in the clear, and none to another name.
      smtp_tls_security_level: 'secure',
      smtp_tls_secure_cert_match: 'hostname',
      smtp_tls_CAfile: roots,
      smtp_tls_loglevel: '1',
      smtpd_milters: `inet:127.0.0.1:${SIGNER}`,
      milter_default_action: 'tempfail',
      minimal_backoff_time: '2s',
      maximal_backoff_time: '2s',
      queue_run_delay: '1s',
    },
  });
  const receiver = await startPostfix(receiving, {
    listen: listen('receiver'),
    enter: network.outside,
    tls: await makeCertificate(dir, 'receiver', [`mx.${RECEIVER}`]),
    main: {
      ...common,
      myhostname: `mx.${RECEIVER}`,
      inet_interfaces: `${v4('receiver')} ${v6('receiver')}`,
      mynetworks: '127.0.0.1',
      virtual_mailbox_domains: [RECEIVER, ...mailboxes].join(' '),
      virtual_mailbox_base: join(receiving, 'mail'),
      virtual_mailbox_maps: 'static:all/',
      virtual_uid_maps: `static:${(await must('id', ['-u', 'postfix'])).trim()}`,
      virtual_gid_maps: `static:${(await must('id', ['-g', 'postfix'])).trim()}`,
      smtpd_relay_restrictions: 'reject_unauth_destination',
      smtpd_milters: `inet:127.0.0.1:${SIGNER} inet:127.0.0.1:${JUDGE}`,
      milter_default_action: 'tempfail',
    },
  });
  await must('install', ['-d', '-o', 'postfix', join(receiving, 'mail')]);
  const box = join(receiving, 'mail/all/new');
  return {
    async send(to, subject) {
      const before = (await sender.log()).length;
      await network.must(
        ...['swaks', '--server', v4('sender'), '--local-interface', v4('sender'), '--silent', '1'],
        ...['--from', `ann@${SENDER}`, '--to', to, '--header', `Subject: ${subject}`, '--body', 'Hello.'],
      );
      return until(`what became of the mail to ${to}`, async () =>
        (await sender.log())
          .slice(before)
          .split('\n')
          .findLast((line) => line.includes(`to=<${to}>`) && /status=(?:sent|bounced|deferred)/.test(line)),
      );
    },
    async forge(to, subject) {
      await network.must(
        ...['swaks', '--local-interface', v4('app'), '--helo', `mx.${SENDER}`, '--silent', '1', '--tls-optional'],
        ...['--from', `ann@${SENDER}`, '--to', to, '--header', `Subject: ${subject}`, '--body', 'Hello.'],
      );
    },
    async accepts(to) {
      const { code } = await network.run(
        ...['swaks', '--local-interface', v4('sender'), '--quit-after', 'RCPT', '--silent', '3'],
        ...['--from', `ann@${SENDER}`, '--to', to],
      );
      return code === 0;
    },
    arrived: (what, is) =>
      until(what, async () => {
        for (const name of (await readdir(box).catch(() => [])).toSorted()) {
          const text = await readFile(join(box, name), 'utf8');
          if (is(text)) return { file: name, text };
        }
        return undefined;
      }),
    async stop() {
      await Promise.all([sender.stop(), receiver.stop()]);
    },
  };
}

/** Where opendkim and opendmarc listen. */
const [SIGNER, JUDGE] = [8891, 8893];

/** opendkim, which signs what the sending server sends and checks what the receiving one gets, and opendmarc. */
async function startFilters(dir: string, { network, names }: Pick<Given, 'network' | 'names'>): Promise<void> {
  const keys = join(dir, 'keys');
  await mkdir(keys);
  await must('openssl', ['genrsa', '-out', join(keys, 's1.pem'), '2048']);
  const open = (await must('openssl', ['rsa', '-in', join(keys, 's1.pem'), '-pubout'])).replace(/-----.*-----|\n/g, '');
  const spf = `v=spf1 ip4:${v4('sender')} ip6:${v6('sender')} -all`;
  await names.publish({
    [SENDER]: [`MX 10 mx.${SENDER}.`, txt(spf)],
    [`mx.${SENDER}`]: [`A ${v4('sender')}`, `AAAA ${v6('sender')}`, txt(spf)],
    [`s1._domainkey.${SENDER}`]: [txt(`v=DKIM1; k=rsa; p=${open}`)],
    [`_dmarc.${SENDER}`]: [txt('v=DMARC1; p=reject')],
    [RECEIVER]: [`MX 10 mx.${RECEIVER}.`],
    [`mx.${RECEIVER}`]: [`A ${v4('receiver')}`, `AAAA ${v6('receiver')}`],
  });
  await writeFile(
    join(dir, 'opendkim.conf'),
    `Mode sv
Domain ${SENDER}
Selector s1
KeyFile ${keys}/s1.pem
Socket inet:${SIGNER}@127.0.0.1
InternalHosts ${dir}/internal
AuthservID mx.${RECEIVER}
AlwaysAddARHeader yes
Nameservers ${v4('resolver')}
RequireSafeKeys no
Background no
`,
  );
  await writeFile(join(dir, 'internal'), `${v4('sender')}\n${v6('sender')}\n`);
  await writeFile(
    join(dir, 'opendmarc.conf'),
    `AuthservID mx.${RECEIVER}
TrustedAuthservIDs mx.${RECEIVER}
Socket inet:${JUDGE}@127.0.0.1
SPFIgnoreResults true
SPFSelfValidate true
Background false
`,
  );
  for (const [program, flag, port] of [
    ['opendkim', '-x', SIGNER],
    ['opendmarc', '-c', JUDGE],
  ] as const) {
    network.serve(join(dir, `${program}.log`), program, '-f', flag, join(dir, `${program}.conf`));
    await until(program, async () => (await network.run('bash', '-c', `: <>/dev/tcp/127.0.0.1/${port}`)).code === 0);
  }
}
