import { expect } from 'chai';
import { stepAt, stepsOf } from '../support/package/steps.ts';
import { until } from '../support/until.ts';
import { BREAKS } from '../support/world/breaks.ts';
import { ACME } from '../support/world/certificates.ts';
import { CUSTOMER, commandsIn, HOST, INBOUND, own, recordsIn, SITE } from '../support/world/documents.ts';
import { bootHost, type Finding, type Host, NoDebian, prepareHost } from '../support/world/host.ts';
import { SENDER } from '../support/world/mail.ts';
import { txt } from '../support/world/names.ts';
import { v4, v6 } from '../support/world/network.ts';
import { createTally, type Tally } from '../support/world/tally.ts';
import { startWorld, type World, whyNoWorld } from '../support/world/world.ts';

const STEPS = stepsOf('operations.md');
/** Blocks of docs/operations.md as the operator of this host types them. */
const block = (heading: string, start: string) => own(stepAt(STEPS, heading, start));

/** Building the package needs npm's registry; installing it does not. */
const [building = '', installing = ''] = block('Install', 'npm ci --omit=dev').split('\n');
const HOOK = '/etc/letsencrypt/renewal-hooks/deploy/postern';
const SETTINGS = '/etc/postern/postern.yaml';
/** A record as `postern dns --zone` prints it; those that the provider of an address publishes are comments. */
const ZONE_LINE = /^(?:; )?(\S+)\. +\d+ IN (\w+) +(.+)$/gm;
/** Each look starts a process, which takes a while on a busy machine. */
const DOCTOR_MS = 120_000;

describe('the first hour of a mail host, by docs/operations.md', function () {
  this.timeout(600_000);
  let world: World | undefined;
  let host: Host;
  let tally: Tally;
  let key = '';

  before('makes the others and a clean Debian', async function () {
    // Packages are fetched, unpacked and packed, with other suites beside it.
    this.timeout(900_000);
    const why = await whyNoWorld();
    if (why !== undefined) {
      console.log(`    left out: ${why}`);
      return this.skip();
    }
    process.once('SIGTERM', cut);
    tally = createTally();
    world = await tally.aside('the others', startWorld);
    const root = await tally
      .aside('a clean Debian and the package', () => prepareHost(here().dir, building))
      .catch((error: unknown) => {
        if (error instanceof NoDebian) return undefined;
        throw error;
      });
    if (root === undefined) {
      console.log('    left out: no clean Debian can be made here');
      return this.skip();
    }
    const booted = await tally.aside('the first boot', () => bootHost(root, here()));
    if (booted === undefined) {
      console.log('    left out: systemd does not boot in a container here');
      return this.skip();
    }
    host = booted;
  });
  after(async () => {
    process.off('SIGTERM', cut);
    tally?.print();
    await host?.stop();
    await world?.stop();
  });
  const cut = () => process.exit(1);
  const here = (): World => {
    if (world === undefined) throw new Error('there is no world');
    return world;
  };
  /** Types the lines of a block one after the other, as somebody who copies them. */
  const type = (name: string, script: string) => tally.typed(name, script, (line) => host.sh(line));
  /** Calls the API as a program elsewhere does: by its name, through the web server, with a certificate that counts. */
  async function api(path: string, body: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>> {
    const { network, dir } = here();
    const url = `https://${SITE}/api/1.0${path}.json`;
    const sent = JSON.stringify({ key, ...body });
    const out = await network.must('curl', '-sS', '--cacert', `${dir}/mail/roots.pem`, url, '-d', sent);
    return JSON.parse(out);
  }

  /** The message of a post. */
  async function posted(subject: string) {
    const { text } = await until(`the post of "${subject}"`, async () =>
      (await here().app.received()).find((each) => each.text.includes(subject)),
    );
    return JSON.parse(text)[0].msg;
  }

  it('installs the package', async () => {
    await type(
      'installing',
      installing.replaceAll('apt install', 'apt install -y').replaceAll('./dist', '/root/postern/dist'),
    );
  });

  it('starts with three settings', async () => {
    await tally.asked('the settings', 3, () =>
      host.edit(SETTINGS, (text) => own(text).replace(/# (postmaster: ).*/, `$1boss@${CUSTOMER}`)),
    );
    await tally.wrote('the hosts file', () =>
      host.edit('/etc/hosts', (text) => text.replace('127.0.1.1', v4('host')) + `${v6('host')} ${HOST}\n`),
    );
    const lines = block('Install', 'sudo postern config check').trimEnd().split('\n');
    for (const line of lines) {
      if (line.endsWith('doctor')) continue; // once everything stands
      const said = await type(line, line);
      if (line.includes('key create')) key = said.trim();
    }
    expect(key).to.match(/^\S{22,}$/);
  });

  it('has its names in DNS', async () => {
    const [zone = '', wait = ''] = block('MX and DNS', 'sudo -u postern postern dns').trimEnd().split('\n');
    // It exits 1, because none is there yet.
    const printed = (await type('the records', `${zone.replace(/\s+#.*/, '')} || true`)).matchAll(ZONE_LINE);
    // The inbound domain is added later.
    const added = recordsIn('MX and DNS').filter(([name]) => name === INBOUND);
    const records = [...[...printed].map(([, name = '', type, data]) => [name, `${type} ${data}`] as const), ...added];
    await tally.published(records.length, () =>
      here().names.publish(
        Object.fromEntries(
          Object.entries(Object.groupBy(records, ([name]) => name)).map(([name, rows = []]) => [
            name,
            rows.map(([, record]) => record),
          ]),
        ),
      ),
    );
    expect(await type('the wait for them', wait)).to.match(/All records are published/);
  });

  it('gets its certificates, and answers at its URL', async () => {
    await host.write(
      '/etc/letsencrypt/cli.ini',
      `server = https://${ACME}:14000/dir\nnon-interactive = true\nagree-tos = true\nregister-unsafely-without-email = true\n`,
    );
    const [first = '', ...others] = commandsIn('TLS', 'certbot certonly');
    await tally.asked('the questions of certbot', 2, () => type(first, first));
    for (const command of others) await type(command, command);
    await tally.wrote('the hook of certbot', () => host.write(HOOK, block('TLS', '#!/bin/sh'), 0o755));
    await host.edit(SETTINGS, (text) => text.replace(/# (cert: .*)/, '$1').replace(/# (key: .*privkey.*)/, '$1'));
    await type('the hook', `RENEWED_LINEAGE=/etc/letsencrypt/live/${HOST} ${HOOK}`);
    await tally.wrote('the site of nginx', () =>
      host.write('/etc/nginx/conf.d/postern.conf', block('TLS', 'server {\n  server_name postern.')),
    );
    await type('nginx', 'systemctl reload nginx');
    await type('the settings', 'systemctl restart postern');
    const { dir, network } = here();
    const answer = await until('the API', async () => {
      const { code, out } = await network.run(
        'curl',
        '-sS',
        '--cacert',
        `${dir}/mail/roots.pem`,
        `https://${SITE}/readyz`,
      );
      return code === 0 && out;
    });
    expect(JSON.parse(answer)).to.include({ status: 'ok' });
  });

  it('accepts a mail over TLS, and posts it with the right verdicts', async () => {
    const [add = '', , route = ''] = ['domain add', 'domain check', 'route add'].map(
      (words) => commandsIn('MX and DNS', `postern ${words}`)[0],
    );
    await type(add, add);
    await type(route, route);
    // The daemon reads the table of routes every few seconds; a mail that comes before would bounce.
    await until('the route', () => here().mail.accepts(`support-1@${INBOUND}`));
    const line = await here().mail.send(`support-1@${INBOUND}`, 'The first one');
    expect(line, line).to.contain('status=sent');
    const msg = await posted('The first one');
    expect(msg.spf.result).to.equal('pass');
    expect(msg.dkim).to.deep.equal({ signed: true, valid: true });
    expect(msg.sender_auth).to.include({ authenticated: true, domain: SENDER });
    expect(msg.envelope.tls).to.match(/^TLSv1\.3/);
    tally.reached('a mail in, over TLS');
  });

  it('posts a forged mail with failing verdicts', async () => {
    await here().mail.forge(`support-2@${INBOUND}`, 'The forged one');
    const msg = await posted('The forged one');
    expect(msg.spf.result).to.equal('fail');
    expect(msg.dkim).to.include({ valid: false });
    expect(msg.sender_auth).to.include({ authenticated: false });
    expect(msg.sender_auth.dmarc).to.include({ result: 'fail' });
  });

  it('sends a mail that others judge dkim=pass and dmarc=pass', async () => {
    const { names, mail } = here();
    const [add = ''] = commandsIn('MX and DNS', 'postern sender add');
    const wanted = [...(await type(add, add)).matchAll(/^ {2}(\S+) {2}TXT {2}"(.*)"$/gm)];
    expect(wanted.map(([, name]) => name)).to.deep.equal([`postern._domainkey.${CUSTOMER}`, CUSTOMER]);
    await tally.published(wanted.length + 1, () =>
      names.publish({
        ...Object.fromEntries(wanted.map(([, name = '', text = '']) => [name, [...names.of(name), txt(text)]])),
        [`_dmarc.${CUSTOMER}`]: [txt('v=DMARC1; p=reject')],
      }),
    );
    // Its records count once their TTL has passed, which is a second here.
    await until('the domain to sign', async () => (await host.sh(add)).includes('is signed from now on'));
    await type(add, add);
    await api('/messages/send', {
      message: {
        from_email: `news@${CUSTOMER}`,
        to: [{ email: 'bob@there.example' }],
        subject: 'The way out',
        text: 'Hello.',
      },
    });
    const { text: judged } = await mail.arrived('the mail out', (each) => each.includes('The way out'));
    expect(judged).to.match(/^Authentication-Results: mx\.there\.example;\s+dkim=pass/m);
    expect(judged).to.match(/dmarc=pass/);
    tally.reached('a mail out, signed and judged');
  });

  it('keeps each certificate in its place when certbot renews both', async () => {
    await host.sh('certbot renew --force-renewal --no-random-sleep-on-renew 2>&1');
    const names = await host.sh('openssl x509 -in /etc/postern/tls/fullchain.pem -noout -ext subjectAltName');
    expect(names).to.contain(`DNS:${HOST}`);
    const line = await here().mail.send(`support-1@${INBOUND}`, 'After the renewal');
    expect(line, line).to.contain('status=sent');
  });

  describe('and postern doctor, while things break one at a time,', () => {
    /** Errors and warnings, except of the clock, which a container does not have itself. */
    const isBad = ({ check, verdict }: Finding) => (verdict === 'fault' || verdict === 'warning') && check !== 'clock';
    const bad = async () => (await host.doctor()).found.filter(isBad);
    const told = (found: readonly Finding[]) => found.map(({ check, verdict, seen }) => `${verdict} ${check}: ${seen}`);

    it('passes, without claims on what it cannot check', async () => {
      const { code, found } = await host.doctor();
      expect(told(found.filter(isBad))).to.deep.equal([]);
      expect(code).to.equal(0);
      const ok = (check: string) => found.find((each) => each.check === check && each.verdict === 'ok')?.seen;
      for (const address of [v4('host'), v6('host')])
        expect(ok(`inbound port 25 at ${address}`)).to.contain('a firewall in front of it is not');
      expect(ok('outbound port 25')).to.contain('mx.there.example answered: 220');
      expect(ok('public URL')).to.contain(`reaches this daemon (${v4('host')}, ${v6('host')})`);
    });

    for (const { name, does, undo, finds } of BREAKS)
      it(`finds ${name}, and that it is fixed`, async () => {
        const at = { host, world: here() };
        let undone: readonly string[] = [];
        try {
          undone = await does(at);
          let last: readonly Finding[] = [];
          const missing = () =>
            finds.filter(
              ([check, verdict, seen]) =>
                !last.some((each) => each.check.startsWith(check) && each.verdict === verdict && seen.test(each.seen)),
            );
          const found = until(
            'all of it to be found',
            async () => {
              last = await bad();
              return missing().length === 0;
            },
            DOCTOR_MS,
          );
          await found.catch((error: unknown) => {
            const names = missing().map(([check, verdict]) => `${verdict} ${check}`);
            throw new Error([String(error), `not found: ${names.join(', ')}`, ...told(last)].join('\n'));
          });
        } finally {
          await undo(at, undone);
        }
        let left: readonly Finding[] = [];
        await until(
          'green',
          async () => {
            left = await bad();
            return left.length === 0;
          },
          DOCTOR_MS,
        ).catch(() => expect(told(left)).to.deep.equal([]));
      });
  });
});
