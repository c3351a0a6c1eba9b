import { expect } from 'chai';
import { NoDebian } from '../support/package/operator.ts';
import { stepAt, stepsOf } from '../support/package/steps.ts';
import { until } from '../support/until.ts';
import { BREAKS, type Break, OWN_BREAKS } from '../support/world/breaks.ts';
import { ACME } from '../support/world/certificates.ts';
import { CUSTOMER, commandsIn, HOST, INBOUND, own, SITE } from '../support/world/documents.ts';
import { bootHost, type Finding, type Host, prepareHost } from '../support/world/host.ts';
import { SENDER } from '../support/world/mail.ts';
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
const OPTIONS = `--hostname ${HOST} --domain ${INBOUND} --email boss@${CUSTOMER}`;
/** What the operator types once the records are published. */
const AFTER = block('Install', 'sudo postern dns --wait')
  .trimEnd()
  .split('\n')
  .map((line) => line.replace(/\s+#.*/, ''));
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
  /** What setup printed. */
  let zone = '';

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
  /** Calls the API as a program elsewhere does: by its name, by HTTPS, with a certificate that counts. */
  async function api(path: string, body: Readonly<Record<string, unknown>>): Promise<Record<string, unknown>> {
    const { network, dir } = here();
    const url = `https://${HOST}/api/1.0${path}.json`;
    const sent = JSON.stringify({ key, ...body });
    const out = await network.must('curl', '-sS', '--cacert', `${dir}/mail/roots.pem`, url, '-d', sent);
    return JSON.parse(out);
  }

  /** What /readyz of a name answers over HTTPS; false if nothing does. */
  async function ready(name: string): Promise<string | false> {
    const { dir, network } = here();
    const { code, out } = await network.run(
      'curl',
      '-sS',
      '--cacert',
      `${dir}/mail/roots.pem`,
      `https://${name}/readyz`,
    );
    return code === 0 && out;
  }

  /** Publishes records beside those that their names have. */
  function publish(records: readonly (readonly [name: string, record: string])[]): Promise<void> {
    const { names } = here();
    const grouped = Object.groupBy(records, ([name]) => name);
    return names.publish(
      Object.fromEntries(
        Object.entries(grouped).map(([name, rows = []]) => [
          name,
          [...new Set([...names.of(name), ...rows.map(([, record]) => record)])],
        ]),
      ),
    );
  }

  /** The message of a post. */
  async function posted(subject: string) {
    const { text } = await until(`the post of "${subject}"`, async () =>
      (await here().app.received()).find((each) => each.text.includes(subject)),
    );
    return JSON.parse(text)[0].msg;
  }

  /** Errors and warnings, except of the clock, which a container does not have itself. */
  const isBad = ({ check, verdict }: Finding) => (verdict === 'fault' || verdict === 'warning') && check !== 'clock';
  const bad = async () => (await host.doctor()).found.filter(isBad);
  const told = (found: readonly Finding[]) => found.map(({ check, verdict, seen }) => `${verdict} ${check}: ${seen}`);

  /** Cases in which the doctor finds something that is broken, and that it is fixed. */
  function breaking(breaks: readonly Break[]): void {
    for (const { name, does, undo, finds } of breaks)
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
  }

  it('installs the package', async () => {
    await type(
      'installing',
      installing.replaceAll('apt install', 'apt install -y').replaceAll('./dist', '/root/postern/dist'),
    );
  });

  it('sees that another program has a port, before it changes anything', async () => {
    const before = await host.read(SETTINGS);
    const { code, out } = await host.run(`postern setup ${OPTIONS}`);
    expect(code, out).to.equal(1);
    expect(out).to.match(/^FAULT {4}port 80: another program listens/m); // nginx, as Debian installs it
    expect(await host.read(SETTINGS)).to.equal(before);
    await host.sh('systemctl disable --now nginx 2>&1');
  });

  it('is set up by three answers', async () => {
    // The authority of the world, and the certificate of its API.
    await host.edit(
      SETTINGS,
      (text) =>
        `${text}\nacme:\n  directory: https://${ACME}:14000/dir\n  ca_file: /usr/local/share/ca-certificates/world-0.crt\n`,
    );
    const [setup = ''] = block('Install', 'sudo postern setup').trimEnd().split('\n');
    const answers = [HOST, INBOUND, `boss@${CUSTOMER}`];
    const said = await tally.asked('of setup', answers.length, () =>
      type('setup', `printf '${answers.map((each) => `${each}\\n`).join('')}' | script -qec '${setup}' /dev/null`),
    );
    zone = said.replaceAll('\r', '');
    key = /API key: .*: (\S+)$/m.exec(zone)?.[1] ?? '';
    expect(key).to.match(/^\S{22,}$/);
    expect(zone).to.match(/\nnext: publish these records, then run postern dns --wait\n$/);
  });

  it('has its names in DNS', async () => {
    const records = [...zone.matchAll(ZONE_LINE)].map(
      ([, name = '', type, data]) => [name, `${type} ${data}`] as const,
    );
    expect(records.map(([name]) => name)).to.include.members([HOST, INBOUND, `postern._domainkey.${INBOUND}`]);
    await tally.published(records.length, () => publish(records));
    const [wait = ''] = AFTER;
    expect(await type('the wait for them', wait)).to.match(/All records are published/);
  });

  it('gets its certificate, and answers at its URL', async () => {
    expect(JSON.parse(await until('the API', () => ready(HOST)))).to.include({ status: 'ok' });
  });

  it('accepts a mail over TLS, and posts it with the right verdicts', async () => {
    const [, route = ''] = AFTER;
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

  it('sends a mail that others judge dkim=pass and dmarc=pass', async () => {
    await api('/messages/send', {
      message: {
        from_email: `news@${INBOUND}`,
        to: [{ email: 'bob@there.example' }],
        subject: 'The way out',
        text: 'Hello.',
      },
    });
    const { text: judged } = await here().mail.arrived('the mail out', (each) => each.includes('The way out'));
    expect(judged).to.match(/^Authentication-Results: mx\.there\.example;\s+dkim=pass/m);
    expect(judged).to.match(/dmarc=pass/);
    tally.reached('a mail out, signed and judged');
  });

  it('signs mail of its own', async () => {
    await api('/exports/rejects', { notify_email: 'bob@there.example' });
    const { text: judged } = await here().mail.arrived('the notice', (each) =>
      /^From: .*postmaster@mx\.operator\.net/m.test(each),
    );
    expect(judged).to.match(
      /^Authentication-Results: mx\.there\.example;\s+dkim=pass[^]+?header\.d=mx\.operator\.net/m,
    );
  });

  it('has nothing left to do, by the doctor', async () => {
    const [, , doctor = ''] = AFTER;
    const said = await type(doctor, doctor);
    const findings = said.split('\n').filter((line) => /^(FAULT|WARNING)/.test(line) && !/^WARNING +clock:/.test(line));
    expect(findings).to.deep.equal([]); // a container has no clock of its own
    tally.reached('a doctor who finds nothing');
    const { commands, questions } = tally.sums();
    expect(commands).to.be.at.most(8);
    expect(questions).to.be.at.most(3);
  });

  it('run again, setup changes nothing', async () => {
    const before = [await host.read(SETTINGS), await host.read('/etc/hosts')];
    const said = await host.sh('postern setup');
    expect(said).to.not.match(/^done/m);
    expect(said).to.match(/\nnext: postern doctor\n$/);
    expect([await host.read(SETTINGS), await host.read('/etc/hosts')]).to.deep.equal(before);
  });

  it('posts a forged mail with failing verdicts', async () => {
    await here().mail.forge(`support-2@${INBOUND}`, 'The forged one');
    const msg = await posted('The forged one');
    expect(msg.spf.result).to.equal('fail');
    expect(msg.dkim).to.include({ valid: false });
    expect(msg.sender_auth).to.include({ authenticated: false });
    expect(msg.sender_auth.dmarc).to.include({ result: 'fail' });
  });

  describe('and the doctor finds', () => breaking(OWN_BREAKS));

  describe('with certbot and nginx in front, by the chapter TLS', () => {
    it('gets its certificates, and answers at another URL', async () => {
      await host.edit(SETTINGS, (text) =>
        text
          .replace(/^public_url: .*/m, `public_url: https://${SITE}`)
          .replace(/^ {2}enabled: true/m, '  enabled: false'),
      );
      await host.sh('systemctl disable --now postern-http.socket postern-https.socket 2>&1');
      await host.sh('systemctl restart postern && systemctl enable --now nginx 2>&1');
      const [print = ''] = block('MX and DNS', 'sudo postern dns').split('\n');
      const missing = await host.sh(`${print.replace(/\s+#.*/, '')} || true`);
      await publish([...missing.matchAll(ZONE_LINE)].map(([, name = '', kind, data]) => [name, `${kind} ${data}`]));
      await host.write(
        '/etc/letsencrypt/cli.ini',
        `server = https://${ACME}:14000/dir\nnon-interactive = true\nagree-tos = true\nregister-unsafely-without-email = true\n`,
      );
      for (const command of commandsIn('TLS', 'certbot certonly')) await host.sh(command);
      await host.write(HOOK, block('TLS', '#!/bin/sh'), 0o755);
      await host.edit(SETTINGS, (text) => text.replace(/# (cert: .*)/, '$1').replace(/# (key: .*privkey.*)/, '$1'));
      await host.sh(`RENEWED_LINEAGE=/etc/letsencrypt/live/${HOST} ${HOOK}`);
      await host.write('/etc/nginx/conf.d/postern.conf', block('TLS', 'server {\n  server_name postern.'));
      await host.sh('systemctl reload nginx && systemctl restart postern');
      expect(JSON.parse(await until('the API', () => ready(SITE)))).to.include({ status: 'ok' });
    });

    it('keeps each certificate in its place when certbot renews both', async () => {
      await host.sh('certbot renew --force-renewal --no-random-sleep-on-renew 2>&1');
      const names = await host.sh('openssl x509 -in /etc/postern/tls/fullchain.pem -noout -ext subjectAltName');
      expect(names).to.contain(`DNS:${HOST}`);
      const line = await here().mail.send(`support-1@${INBOUND}`, 'After the renewal');
      expect(line, line).to.contain('status=sent');
    });
  });

  describe('and postern doctor, while things break one at a time,', () => {
    it('passes, without claims on what it cannot check', async () => {
      const { code, found } = await host.doctor();
      expect(told(found.filter(isBad))).to.deep.equal([]);
      expect(code).to.equal(0);
      const ok = (check: string) => found.find((each) => each.check === check && each.verdict === 'ok')?.seen;
      for (const address of [v4('host'), v6('host')])
        expect(ok(`inbound port 25 at ${address}`)).to.contain('not through a firewall in front of it');
      expect(ok('outbound port 25')).to.contain('mx.there.example answered: 220');
      expect(ok('public URL')).to.contain(`reaches this daemon (${v4('host')}, ${v6('host')})`);
    });

    breaking(BREAKS);
  });
});
