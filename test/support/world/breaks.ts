import { must, run } from '../package/run.ts';
import { makeCertificate } from './certificates.ts';
import { APP, HOST, INBOUND, SITE } from './documents.ts';
import type { Finding, Host } from './host.ts';
import { reverseName } from './names.ts';
import { v4, v6 } from './network.ts';
import type { World } from './world.ts';

// What goes wrong at a mail host, one thing at a time, and what `postern doctor` has to say of it.

interface At {
  readonly host: Host;
  readonly world: World;
}

export interface Break {
  readonly name: string;
  does(at: At): Promise<readonly string[]>;
  /** Mends it; gets what `does` answered. */
  undo(at: At, undone: readonly string[]): Promise<void>;
  /** The check begins so, with this verdict and these words. */
  readonly finds: readonly (readonly [check: string, verdict: Finding['verdict'], seen: RegExp])[];
  /** One check alone is about it. */
  readonly apart?: true;
}

/** Commands on the host. */
const typed = (name: string, command: string, mend: string, ...finds: Break['finds']): Break => ({
  name,
  does: async ({ host }) => [await host.sh(command)],
  undo: async ({ host }) => void (await host.sh(mend)),
  finds,
});

/** Records in the DNS of the world. */
const published = (
  name: string,
  at: string,
  change: (lines: readonly string[]) => readonly string[],
  ...finds: Break['finds']
): Break => ({
  name,
  async does({ world: { names } }) {
    const lines = names.of(at);
    if (lines.length === 0) throw new Error(`${at} has no records`);
    await names.publish({ [at]: change(lines) });
    return lines;
  },
  undo: async ({ world: { names } }, lines) => names.publish({ [at]: lines }),
  finds,
});

/** The same for records that no other check reads. */
const apart = (...of: Parameters<typeof published>): Break => ({ ...published(...of), apart: true });

/** Files of the host, with what notices them; put back afterwards. */
const replaced = (
  name: string,
  files: readonly string[],
  change: (at: At) => Promise<void>,
  notice: string,
  ...finds: Break['finds']
): Break => ({
  name,
  async does(at) {
    for (const file of files) await at.host.sh(`cp -a ${file} /root/kept${file.replaceAll('/', '-')}`);
    await change(at);
    await at.host.sh(notice);
    return [];
  },
  async undo({ host }) {
    for (const file of files) await host.sh(`cp -a /root/kept${file.replaceAll('/', '-')} ${file}`);
    await host.sh(notice);
  },
  finds,
});

/** A rule of a firewall, on the host or between it and the others. */
const firewall = (
  name: string,
  side: 'inside' | 'outside',
  hook: string,
  rule: string,
  ...finds: Break['finds']
): Break => ({
  name,
  async does({ world: { network } }) {
    const [program = '', ...words] = network[side];
    const table = `table inet blocked { chain port25 { type filter hook ${hook} priority 0; ${rule}; }; }`;
    await must(program, [...words, 'nft', table]);
    return [];
  },
  async undo({ world: { network } }) {
    const [program = '', ...words] = network[side];
    await run(program, [...words, 'nft', 'delete table inet blocked']);
  },
  finds,
});

const SMTP_CERTIFICATE = ['/etc/postern/tls/fullchain.pem', '/etc/postern/tls/privkey.pem'];

/** Another certificate for SMTP, as a hook of somebody else may leave it. */
const smtpCertificate = (what: string, names: readonly string[], days: number, ...finds: Break['finds']) =>
  replaced(
    what,
    SMTP_CERTIFICATE,
    async ({ host, world: { dir } }) => {
      const made = await makeCertificate(dir, `smtp-${days}-${names[0]}`, names, days);
      await host.bring(made.cert, '/etc/postern/tls/fullchain.pem');
      await host.bring(made.key, '/etc/postern/tls/privkey.pem');
      await host.sh('chgrp postern /etc/postern/tls/*.pem; chmod 640 /etc/postern/tls/*.pem');
    },
    'systemctl reload postern',
    ...finds,
  );

const SITE_FILE = '/etc/nginx/conf.d/postern.conf';
const WEB_CERTIFICATE = ['/root/web.pem', '/root/web.key'];
const webCertificate = (what: string, name: string, days: number, ...finds: Break['finds']) =>
  replaced(
    what,
    [SITE_FILE],
    async ({ host, world: { dir } }) => {
      const made = await makeCertificate(dir, `web-${days}-${name}`, [name], days);
      await host.bring(made.cert, '/root/web.pem');
      await host.bring(made.key, '/root/web.key');
      await host.edit(SITE_FILE, (text) =>
        text
          .replace(/(ssl_certificate +)\S+;/, `$1${WEB_CERTIFICATE[0]};`)
          .replace(/(ssl_certificate_key +)\S+;/, `$1${WEB_CERTIFICATE[1]};`),
      );
      // So that only what is broken is: everybody trusts it otherwise.
      await host.sh('cp /root/web.pem /usr/local/share/ca-certificates/web.crt; update-ca-certificates 2>&1');
    },
    'systemctl restart nginx',
    ...finds,
  );

const block = `tcp dport 25 ip saddr ${v4('host')} drop; tcp dport 25 ip6 saddr ${v6('host')} drop`;

const ALL: readonly Break[] = [
  typed('a web server that is stopped', 'systemctl stop nginx', 'systemctl start nginx', [
    'public URL',
    'fault',
    /ECONNREFUSED/,
  ]),
  replaced(
    'a web server that does not listen for IPv6',
    [SITE_FILE],
    ({ host }) => host.edit(SITE_FILE, (text) => text.replace(/^.*\[::\]:443.*$/m, '')),
    'systemctl restart nginx',
    ['public URL', 'fault', /2d00:66::10: .*ECONNREFUSED/],
  ),
  replaced(
    'a web server that leads elsewhere',
    [SITE_FILE],
    ({ host }) => host.edit(SITE_FILE, (text) => text.replace(/proxy_pass .*;/, 'root /var/www/html;')),
    'systemctl restart nginx',
    ['public URL', 'fault', /another server answers \(404/],
  ),
  typed(
    'a daemon that is stopped behind it',
    'systemctl stop postern-smtp.socket postern.service',
    'systemctl start postern-smtp.socket postern.service',
    ['public URL', 'fault', /answers 502/],
    ['daemon', 'fault', /no answer/],
    ['inbound port 25 at', 'fault', /ECONNREFUSED/],
  ),
  webCertificate('a certificate of the web server that has expired', SITE, -1, ['public URL', 'fault', /expired/]),
  webCertificate('one for another name', 'www.operator.net', 20, ['public URL', 'fault', /altnames|does not match/]),
  published('a public URL that leads to another host', SITE, () => [`A ${v4('app')}`], [
    'public URL',
    'fault',
    /25\.66\.0\.80: .*ECONNREFUSED/,
  ]),
  {
    name: 'a resolver that is stopped',
    async does({ world: { names } }) {
      await names.stopResolver();
      return [];
    },
    undo: ({ world: { names } }) => names.startResolver(),
    finds: [['resolver', 'fault', /no answer/]],
  },
  apart('an MX record that names another host', INBOUND, () => ['MX 10 mx.there.example.'], [
    `MX ${INBOUND}`,
    'fault',
    /mx\.there\.example/,
  ]),
  published('a host name that leads to another host', HOST, () => [`A ${v4('receiver')}`], [
    `inbound port 25 at ${v4('receiver')}`,
    'fault',
    /another server answers: 220 mx\.there\.example/,
  ]),
  apart('a missing PTR record', reverseName(v4('host')), () => [], [
    `reverse DNS ${v4('host')}`,
    'fault',
    /no PTR record/,
  ]),
  apart('one of another name, of IPv6', reverseName(v6('host')), () => ['PTR host-10.provider.net.'], [
    `reverse DNS ${v6('host')}`,
    'fault',
    /points to host-10\.provider\.net/,
  ]),
  apart('a missing SPF record of the host name', HOST, (lines) => lines.filter((line) => !line.startsWith('TXT')), [
    `SPF ${HOST}`,
    'warning',
    /no SPF record/,
  ]),
  apart('a missing key of our own mail', `postern._domainkey.${HOST}`, () => [], [
    `DKIM ${HOST}`,
    'warning',
    /no DKIM record/,
  ]),
  apart('a missing SPF record of what sender domains include', `spf.${HOST}`, () => [], [
    'SPF include',
    'warning',
    /no SPF record/,
  ]),
  apart('a return domain without MX', `bounces.${HOST}`, (lines) => lines.filter((line) => !line.startsWith('MX')), [
    'return domain',
    'warning',
    /no MX record/,
  ]),
  apart(
    'a DKIM record with another key',
    `postern._domainkey.${INBOUND}`,
    (lines) => lines.map((line) => line.replace(/p=.{12}/, 'p=AAAAAAAAAAAA')),
    [`DKIM ${INBOUND}`, 'warning', /./],
  ),
  smtpCertificate('a certificate that has expired', [HOST], -1, ['certificate', 'fault', /expired/]),
  smtpCertificate('a certificate for another name', ['www.operator.net'], 20, [
    'certificate name',
    'warning',
    /www\.operator\.net/,
  ]),
  replaced(
    'a certificate with the key of another',
    ['/etc/postern/tls/privkey.pem'],
    async ({ host, world: { dir } }) => {
      const made = await makeCertificate(dir, 'other-key', [HOST]);
      await host.bring(made.key, '/etc/postern/tls/privkey.pem');
      await host.sh('chgrp postern /etc/postern/tls/privkey.pem; chmod 640 /etc/postern/tls/privkey.pem');
    },
    'systemctl reload postern',
    ['certificate', 'fault', /key/],
  ),
  replaced(
    'a disk that is nearly full',
    ['/etc/postern/postern.yaml'],
    // The disk is that of the machine of the test: what counts as full is moved instead.
    ({ host }) =>
      host.edit('/etc/postern/postern.yaml', (text) => `${text}\nspool: {min_free_bytes: 1000000000000000}\n`),
    'systemctl restart postern',
    ['disk', 'fault', /new mail is refused/],
    ['daemon', 'fault', /spool|disk|room/],
  ),
  {
    name: 'a webhook that is down, with a backlog',
    async does({ world: { app, mail } }) {
      await app.answers(503);
      for (let n = 1; n <= 8; n++) await mail.send(`support-${n}@${INBOUND}`, `Waits ${n}`);
      return [];
    },
    async undo({ host, world: { app } }) {
      await app.answers(200);
      await host.sh(`postern queue retry --url http://${APP}/mail`);
    },
    finds: [[`endpoint http://${APP}/mail`, 'warning', /^down for .*: \d+ deliveries wait, the oldest for/]],
  },
  firewall('a firewall of the host that lets nobody in', 'inside', 'input', 'tcp dport 25 drop', [
    `inbound port 25 at ${v4('host')}`,
    'fault',
    /no answer within 5 s/,
  ]),
  firewall('a provider that lets no mail out', 'outside', 'input', block, [
    'outbound port 25',
    'fault',
    /mx\.there\.example/,
  ]),
  {
    name: 'a route that leads nowhere',
    async does({ world: { network } }) {
      const [program = '', ...words] = network.inside;
      await must(program, [...words, 'ip', 'route', 'add', 'unreachable', `${v4('receiver')}/32`]);
      await must(program, [...words, 'ip', 'route', 'add', 'unreachable', `${v6('receiver')}/128`]);
      return [];
    },
    async undo({ world: { network } }) {
      const [program = '', ...words] = network.inside;
      await must(program, [...words, 'ip', 'route', 'del', 'unreachable', `${v4('receiver')}/32`]);
      await must(program, [...words, 'ip', 'route', 'del', 'unreachable', `${v6('receiver')}/128`]);
    },
    finds: [['outbound port 25', 'fault', /EHOSTUNREACH/]],
  },
  replaced(
    'a hosts file that sends our name back to this machine',
    ['/etc/hosts'],
    ({ host }) => host.edit('/etc/hosts', (text) => text.replace(v4('host'), '127.0.1.1')),
    'true',
    ['hosts file', 'warning', /127\.0\.1\.1 for mx\.operator\.net/],
  ),
];

/** What breaks where the daemon itself serves HTTPS. */
export const OWN_BREAKS: readonly Break[] = [
  typed(
    'a daemon that is stopped with its sockets',
    "systemctl stop 'postern-*.socket' postern.service",
    'systemctl start postern-smtp.socket postern-http.socket postern-https.socket postern.service',
    ['public URL', 'fault', /ECONNREFUSED/],
    ['daemon', 'fault', /no answer/],
    ['inbound port 25 at', 'fault', /ECONNREFUSED/],
  ),
  published(
    'a host name with an address of IPv6 of another host',
    HOST,
    (lines) => lines.map((line) => line.replace(v6('host'), v6('app'))),
    ['public URL', 'fault', /2d00:66::80/],
  ),
];

/** Several at once: each is found for itself. */
const together = (breaks: readonly Break[]): Break => ({
  name: breaks.map(({ name }) => name).join('; '),
  async does(at) {
    const undone: (readonly string[])[] = [];
    for (const each of breaks) undone.push(await each.does(at));
    return undone.map((lines) => JSON.stringify(lines));
  },
  async undo(at, undone) {
    for (const [n, each] of breaks.entries()) {
      const lines = undone[n];
      if (lines !== undefined) await each.undo(at, JSON.parse(lines));
    }
  },
  finds: breaks.flatMap(({ finds }) => finds),
});

function small(): Break[] {
  const firsts = ALL.filter(
    ({ finds }, index) => ALL.findIndex((other) => other.finds[0]?.[0] === finds[0]?.[0]) === index,
  );
  return [together(firsts.filter((each) => each.apart)), ...firsts.filter((each) => !each.apart)];
}

/**
 * All of them, one at a time. With WORLD=small, which is that of every change, one for each check of the doctor, and
 * those that have nothing to do with each other at once: a look of the doctor costs seconds.
 */
export const BREAKS: readonly Break[] = process.env['WORLD'] === 'small' ? small() : ALL;
