import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { configurationDoc } from '../../scripts/configuration.ts';
import { ConfigError, DEFAULTS_FILE, loadSettings } from '../../src/config.ts';
import { tempDir } from '../support/temp.ts';

async function file(text: string): Promise<string> {
  const path = join(await tempDir(), 'postern.yaml');
  writeFileSync(path, text);
  return path;
}

function faults(load: () => unknown): string[] {
  try {
    load();
  } catch (error) {
    if (error instanceof ConfigError) return error.faults.map(({ path, text }) => `${path}: ${text}`);
    throw error;
  }
  return [];
}

describe('the settings', () => {
  it('need no file: the defaults are complete', () => {
    const { settings } = loadSettings(undefined, {});
    expect(settings.smtp.listen).to.deep.equal([{ host: '127.0.0.1', port: 2525 }]);
    expect(settings.public_url).to.equal('http://127.0.0.1:8080');
    expect(settings.hostname).not.to.equal('');
    expect(settings.webhooks.allow_private).to.equal(null);
  });

  it('allow the thousand pools of the contract', () => {
    expect(loadSettings(undefined, {}).settings.accounts.max_pools).to.equal(1000);
  });

  it('are read from the file over the defaults, and from the environment over both', async () => {
    const path = await file('hostname: mx.example.com\nsmtp:\n  listen: ["0.0.0.0:25"]\n  max_sessions: 7\n');
    const { settings, shown } = loadSettings(path, {
      POSTERN_SMTP__LISTEN: '127.0.0.1:26, [::1]:26',
      POSTERN_CONFIG: path,
      HOME: '/root',
    });
    expect(settings.hostname).to.equal('mx.example.com');
    expect(settings.smtp.max_sessions).to.equal(7);
    expect(settings.smtp.listen).to.deep.equal([
      { host: '127.0.0.1', port: 26 },
      { host: '::1', port: 26 },
    ]);
    const origin = (name: string) => shown.find((setting) => setting.path === name)?.origin;
    expect([origin('smtp.listen'), origin('smtp.max_sessions'), origin('log.level')]).to.deep.equal([
      'POSTERN_SMTP__LISTEN',
      path,
      'default',
    ]);
  });

  it('read an empty environment variable of a list as the empty list', () => {
    expect(
      loadSettings(undefined, { POSTERN_WEBHOOKS__ALLOW_PRIVATE: '' }).settings.webhooks.allow_private,
    ).to.deep.equal([]);
    expect(
      loadSettings(undefined, { POSTERN_WEBHOOKS__ALLOW_PRIVATE: '10.0.0.0/8,::1' }).settings.webhooks.allow_private,
    ).to.deep.equal(['10.0.0.0/8', '::1']);
  });

  it('report every error with its path and origin', async () => {
    const path = await file('smtp:\n  listen: [nowhere]\n  max_recipients: 3\nhtp:\n  x: 1\nlog:\n  level: loud\n');
    const found = faults(() =>
      loadSettings(path, {
        POSTERN_HTTP__LISTN: 'x',
        POSTERN_DNS__SERVERS: 'ns.example',
        POSTERN_STORE__URL: 'mongodb://',
      }),
    );
    for (const start of [
      'htp.x: unknown setting',
      'POSTERN_HTTP__LISTN: unknown setting',
      'smtp.listen.0: must be address:port',
      'smtp.max_recipients: must be at least 100',
      'dns.servers.0: must be an address, such as 192.0.2.53',
      'log.level: must be one of debug, info, ',
      'store.url: must be mongodb://host/',
    ]) {
      expect(
        found.filter((fault) => fault.startsWith(start)),
        start,
      ).to.have.length(1);
    }
    expect(found.find((fault) => fault.startsWith('dns.servers'))).to.contain('POSTERN_DNS__SERVERS');
  });

  it('accept name servers with and without a port', () => {
    const servers = ['192.0.2.53', '192.0.2.53:5353', '2001:db8::53', '[2001:db8::53]:5353'];
    expect(loadSettings(undefined, { POSTERN_DNS__SERVERS: servers.join(',') }).settings.dns.servers).to.deep.equal(
      servers,
    );
  });

  it('list the valid forms of a scanner', () => {
    const wrong = {
      POSTERN_SCAN__CLAMD: ['clamd', 'scan.clamd: must be host:port, such as 127.0.0.1:3310, or the path'],
      POSTERN_SCAN__SPAMD: ['127.0.0.1:70000', 'scan.spamd: must be host:port'],
      POSTERN_SCAN__MILTERS: ['127.0.0.1:11332', 'scan.milters.0: must be spam= or virus='],
      POSTERN_SCAN__RSPAMD: ['localhost:11333', 'scan.rspamd: must be an http or https URL'],
      POSTERN_SCAN__SPAM_AT: ['much', 'scan.spam_at: must be a number'],
    };
    for (const [name, [value = '', fault = '']] of Object.entries(wrong))
      expect(faults(() => loadSettings(undefined, { [name]: value }))[0]).to.contain(fault);
    const { settings } = loadSettings(undefined, {
      POSTERN_SCAN__CLAMD: '/run/clamav/clamd.ctl',
      POSTERN_SCAN__MILTERS: 'spam=[::1]:11332, virus=scan.example:1',
      POSTERN_SCAN__SPAM_AT: '7.5',
    });
    expect(settings.scan.clamd).to.deep.equal({ path: '/run/clamav/clamd.ctl' });
    expect(settings.scan.milters.map(({ finds, address }) => [finds, address])).to.deep.equal([
      ['spam', { host: '::1', port: 11332 }],
      ['virus', { host: 'scan.example', port: 1 }],
    ]);
    expect(settings.scan.spam_at).to.equal(7.5);
  });

  it('suggest the setting that was meant', () => {
    expect(faults(() => loadSettings(undefined, { POSTERN_SMTP_LISTEN: '127.0.0.1:25' }))[0]).to.contain(
      'did you mean smtp.listen?',
    );
  });

  it('reject an invalid section, a file that is not YAML, and a missing file', async () => {
    expect(faults(() => loadSettings(undefined, {}))).to.deep.equal([]);
    const scalar = await file('smtp: 5\n');
    expect(faults(() => loadSettings(scalar, {}))[0]).to.contain(
      'smtp: is a section, not a setting; its settings have names such as smtp.listen',
    );
    expect(faults(() => loadSettings(undefined, { POSTERN_SMTP__TLS: 'x' }))[0]).to.contain(
      'is a section, not a setting; its settings have names such as smtp.tls.cert',
    );
    const broken = await file('smtp: [\n');
    expect(faults(() => loadSettings(broken, {}))).to.have.length(1);
    expect(faults(() => loadSettings('/nowhere/postern.yaml', {}))[0]).to.contain('ENOENT');
  });

  it('use the defaults for an empty section', async () => {
    const path = await file('smtp:\nhostname: mx.example.com\n');
    expect(loadSettings(path, {}).settings.smtp.max_recipients).to.equal(1000);
  });

  it('handle names of object internals safely', async () => {
    const path = await file('__proto__:\n  x: 1\nconstructor: 1\n');
    expect(faults(() => loadSettings(path, {})).join(' ')).to.contain('constructor: unknown setting');
    expect(Object.hasOwn(Object.prototype, 'x')).to.equal(false);
  });

  it('reject a postmaster address whose mail would return here', () => {
    const env = { POSTERN_HOSTNAME: 'mx.example.com', POSTERN_INBOUND__MX_HOSTS: 'mx2.example.com' };
    for (const address of ['ops@mx.example.com', 'ops@MX2.example.com', 'ops@bounces.mx.example.com']) {
      expect(() => loadSettings(undefined, { ...env, POSTERN_SMTP__POSTMASTER: address }), address).to.throw(
        /^smtp\.postmaster: must be a mailbox on another server/,
      );
    }
    expect(() => loadSettings(undefined, { ...env, POSTERN_SMTP__POSTMASTER: 'ops@[192.0.2.1]' })).to.throw(
      /^smtp\.postmaster: must be an email address/,
    );
    expect(
      loadSettings(undefined, { ...env, POSTERN_SMTP__POSTMASTER: 'ops@example.com' }).settings.smtp.postmaster,
    ).to.equal('ops@example.com');
  });

  it('accept cron expressions for tasks, and explain invalid ones', () => {
    const fault = (expression: string) => faults(() => loadSettings(undefined, { POSTERN_TASKS__PURGE: expression }));
    const wrong = (what: string) => [
      `tasks.purge: must be a cron expression, such as */5 * * * * (${what}) (in POSTERN_TASKS__PURGE)`,
    ];
    for (const good of ['*/10 * * * * *', '0 4 * * 1-5', '0 0 L * *', '@daily']) expect(fault(good)).to.deep.equal([]);
    expect(fault('61 * * * *')).to.deep.equal(wrong('minute cannot be 61'));
    expect(fault('0 0 30 2 *')).to.deep.equal(wrong('day of month cannot be 30'));
    for (const bad of ['', 'often', '* * * *', '* * * * * * *'])
      expect(fault(bad)).to.deep.equal(wrong('five fields, or six that begin with seconds'));
  });

  it('require a separate host for mail, which serves nothing else', () => {
    const CONSOLE = 'https://console.example.com';
    const fault = (mailOrigin: string, env: Record<string, string> = { POSTERN_CONSOLE__URL: CONSOLE }) => {
      const given = { POSTERN_CONSOLE__MAIL_ORIGIN: mailOrigin, ...env };
      try {
        return loadSettings(undefined, given).settings.console.mail_origin;
      } catch {
        return faults(() => loadSettings(undefined, given));
      }
    };
    const no = (text: string) => [`console.mail_origin: ${text}`];
    const loopback = { POSTERN_HTTP__LISTEN: '127.0.0.1:8080' };
    expect(fault('https://mail-view.example.net')).to.equal('https://mail-view.example.net');
    expect(fault('http://localhost:8080', loopback)).to.equal('http://localhost:8080');
    for (const bad of ['mail-view.example.net', 'https://mail-view.example.net/x', 'http://mail-view.example.net'])
      expect(fault(bad), bad).to.deep.equal(
        no(
          'must be https://host, or http:// with a loopback address, without a path (in POSTERN_CONSOLE__MAIL_ORIGIN)',
        ),
      );
    expect(fault(`${CONSOLE}:8443`)).to.deep.equal(
      no(`must have another host name than the console (console.url: ${CONSOLE})`),
    );
    expect(fault('http://127.0.0.1:9000', loopback)).to.deep.equal(
      no('must have another host name than the console (public_url: http://127.0.0.1:8080)'),
    );
    expect(
      fault('https://api.example.com', {
        POSTERN_CONSOLE__URL: CONSOLE,
        POSTERN_PUBLIC_URL: 'https://api.example.com/mail',
      }),
    ).to.deep.equal(
      no(
        'must have another host name than public_url (https://api.example.com/mail): nothing but mail is answered there',
      ),
    );
    expect(fault('http://localhost:8080')).to.deep.equal(
      no(`must be https, as the console (${CONSOLE}) is: browsers show nothing of http:// in it`),
    );
  });

  it('require cert and key together', () => {
    expect(faults(() => loadSettings(undefined, { POSTERN_SMTP__TLS__CERT: '/a.pem' }))).to.deep.equal([
      'smtp.tls: needs both cert and key, or neither',
    ]);
  });

  it('require a certificate for TLS from the first byte, from an authority or from files', () => {
    const text = 'needs a certificate: set acme.enabled, or smtp.tls.cert and smtp.tls.key';
    expect(faults(() => loadSettings(undefined, { POSTERN_SUBMISSION__TLS_LISTEN: '127.0.0.1:0' }))).to.deep.equal([
      `submission.tls_listen: ${text}`,
    ]);
    const https = { POSTERN_HTTPS__LISTEN: '0.0.0.0:443' };
    expect(faults(() => loadSettings(undefined, https))).to.deep.equal([`https.listen: ${text}`]);
    const files = { POSTERN_SMTP__TLS__CERT: '/etc/cert.pem', POSTERN_SMTP__TLS__KEY: '/etc/key.pem' };
    for (const more of [{ POSTERN_ACME__ENABLED: 'true' }, files])
      expect(faults(() => loadSettings(undefined, { ...https, ...more }))).to.deep.equal([]);
  });

  it('explain what an ACME authority needs', () => {
    expect(
      faults(() =>
        loadSettings(undefined, { POSTERN_ACME__DIRECTORY: 'http://ca.test/dir', POSTERN_ACME__EMAIL: 'nobody' }),
      ),
    ).to.deep.equal([
      'acme.directory: must be an https URL (in POSTERN_ACME__DIRECTORY)',
      'acme.email: must be an email address (in POSTERN_ACME__EMAIL)',
    ]);
    expect(faults(() => loadSettings(undefined, { POSTERN_ACME__EAB_KEY_ID: 'kid-1' }))).to.deep.equal([
      'acme: needs both eab_key_id and eab_hmac_key, or neither',
    ]);
  });

  it('keep copies of mail only in a database that hosts share', () => {
    const copies = { POSTERN_QUEUE__COPIES: 'store' };
    expect(faults(() => loadSettings(undefined, copies))).to.deep.equal([
      'queue.copies: store needs a database that hosts share: set store.url or store.url_file',
    ]);
    for (const url of [{ POSTERN_STORE__URL: 'mongodb://db.test/postern' }, { POSTERN_STORE__URL_FILE: '/etc/url' }])
      expect(faults(() => loadSettings(undefined, { ...copies, ...url }))).to.deep.equal([]);
  });

  it('hide secrets', () => {
    const { shown } = loadSettings(undefined, {
      POSTERN_BOOTSTRAP__API_KEY: 'abcdefghijklmnop',
      POSTERN_STORE__URL: 'mongodb://user:pass@db/postern',
      POSTERN_ACME__EAB_KEY_ID: 'kid-1',
      POSTERN_ACME__EAB_HMAC_KEY: 'c2VjcmV0',
    });
    expect(JSON.stringify(shown)).not.to.match(/abcdefghijklmnop|pass@|c2VjcmV0/);
  });

  it('have a comment on every default', () => {
    const lines = readFileSync(DEFAULTS_FILE, 'utf8').split('\n');
    const bare = lines.filter(
      (line, i) =>
        /^\s*\w+:\s*\S/.test(line) && !/^\s*#/.test(lines[i - 1] ?? '') && !/^\s*\w+:\s*\S/.test(lines[i - 1] ?? ''),
    );
    expect(bare).to.deep.equal([]);
  });

  it('have a manual that matches the defaults file (npm run docs writes it)', () => {
    const manual = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
    expect(
      manual === configurationDoc(readFileSync(DEFAULTS_FILE, 'utf8')),
      'docs/configuration.md is out of date: npm run docs',
    ).to.equal(true);
    for (const { path } of loadSettings(undefined, {}).shown) expect(manual).to.contain(`## \`${path}\``);
  });
});
