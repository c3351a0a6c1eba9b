import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { type ChildDaemon, spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { freePort } from '../support/free-port.ts';
import { message, sendMail } from '../support/mail.ts';
import { scrape } from '../support/metrics.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const path = (name: string) => new URL(`../../${name}`, import.meta.url).pathname;
const fixture = (name: string) => path(`test/fixtures/tls/${name}.pem`);
const ALERTS = path('config/prometheus-alerts.yml');
const ALERT_NAMES = [...readFileSync(ALERTS, 'utf8').matchAll(/alert: (\w+)/g)].map(([, name]) => name);

/** Runs promtool; fails with what it said unless it is content. */
function promtool(args: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync('promtool', args, {
    input,
    encoding: 'utf8',
    cwd: path('test/support/interop'),
    timeout: 30_000,
  });
  expect(status, `promtool ${args.join(' ')}: ${stdout}${stderr}`).to.equal(0);
  return stdout + stderr;
}

/** What the panels of the dashboard ask, with its variables filled in. */
function dashboardQueries(): string[] {
  const { panels }: { panels: { targets?: { expr: string }[] }[] } = JSON.parse(
    readFileSync(path('config/grafana-dashboard.json'), 'utf8'),
  );
  return panels.flatMap(({ targets = [] }) =>
    targets.map(({ expr }) => expr.replaceAll('$instance', '.*').replaceAll('$__rate_interval', '1m')),
  );
}

/** A Prometheus of its own that scrapes `target` every second and evaluates the alerts as often. */
async function startPrometheus(target: string) {
  const dir = await tempDir();
  const port = await freePort();
  copyFileSync(ALERTS, join(dir, 'prometheus-alerts.yml'));
  const example = readFileSync(path('config/prometheus.example.yml'), 'utf8');
  writeFileSync(
    join(dir, 'prometheus.yml'),
    example.replaceAll('15s', '1s').replace('10s', '1s').replace('127.0.0.1:8080', target),
  );
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(dir, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(dir, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += String(chunk);
  });
  const get = async (what: string): Promise<any> => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${what}`);
    const body: any = await response.json();
    if (body.status !== 'success') throw new Error(`${decodeURIComponent(what)}: ${body.error}`);
    return body.data;
  };
  await until(
    'prometheus to answer',
    () =>
      get('status/buildinfo').then(
        () => true,
        () => {
          if (child.exitCode !== null) throw new Error(`prometheus ended: ${said}`);
          return false;
        },
      ),
    30_000,
  );
  return {
    get,
    query: async (expr: string): Promise<{ metric: Record<string, string>; value: [number, string] }[]> =>
      (await get(`query?query=${encodeURIComponent(expr)}`)).result,
    rules: async (): Promise<
      { name: string; state: string; health: string; lastError?: string; evaluationTime: number }[]
    > => (await get('rules')).groups.flatMap((group: any) => group.rules),
    async stop() {
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      await ended;
    },
  };
}

describe("Debian's prometheus", function () {
  this.timeout(120_000);
  let receiver: Receiver;
  let postern: ChildDaemon;
  let config: string;
  before(async function () {
    if (spawnSync('promtool', ['--version']).status !== 0 || spawnSync('prometheus', ['--version']).status !== 0) {
      console.log('      left out: prometheus is not installed');
      return this.skip();
    }
    receiver = await startReceiver();
    const dir = await tempDir();
    config = join(dir, 'postern.yaml');
    writeFileSync(config, 'smtp:\n  max_sessions: 100\n');
    postern = await spawnDaemon(dir, {
      POSTERN_CONFIG: config,
      // The name of the certificate; another one is a reason for an alert.
      POSTERN_HOSTNAME: 'first.ours.test',
      POSTERN_SMTP__TLS__CERT: fixture('first.cert'),
      POSTERN_SMTP__TLS__KEY: fixture('first.key'),
    });
    const { api } = createCaller(postern.base, KEY);
    await api('/inbound/add-domain', { domain: 'in.test' });
    await api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: receiver.url });
    for (let i = 0; i < 20; i++)
      await sendMail(postern.smtp, { from: 'ada@sender.test', to: 'box@in.test' }, message(`prometheus-${i}`));
    await sendMail(postern.smtp, { from: 'ada@sender.test', to: 'box@elsewhere.test' }, message('refused'));
    await until('the posts', () => receiver.requests.filter(({ method }) => method === 'POST').length >= 20, 30_000);
  });
  after(async () => {
    await postern?.end();
    await receiver?.stop();
  });

  it('accepts the output of /metrics', async () => {
    // The names of prom-client's own figures are as everybody knows them, and not all to its taste.
    expect(
      promtool(
        ['check', 'metrics'],
        (await scrape(postern.base)).text
          .split('\n')
          .filter((line) => !/nodejs_|process_/.test(line))
          .join('\n'),
      ),
    ).to.equal('');
  });

  it('accepts the rules and the example configuration', () => {
    expect(promtool(['check', 'rules', ALERTS])).to.contain(`${ALERT_NAMES.length} rules found`);
    promtool(['check', 'config', path('config/prometheus.example.yml')]);
  });

  it('fires every alert when it should, and only then', () => {
    const cases = readFileSync(path('test/support/interop/prometheus-alerts.test.yml'), 'utf8');
    expect(ALERT_NAMES).to.have.length.above(10);
    for (const name of ALERT_NAMES)
      expect(cases, name).to.contain(`name: ${name} fires\n`).and.to.contain(`name: ${name} is quiet\n`);
    promtool(['test', 'rules', 'prometheus-alerts.test.yml']);
  });

  it('gets every metric that the dashboard and the alerts use', async () => {
    const { names, text } = await scrape(postern.base);
    const histograms = [...text.matchAll(/^# TYPE (\S+) histogram$/gm)].flatMap(([, name]) => [
      `${name}_bucket`,
      `${name}_sum`,
      `${name}_count`,
    ]);
    const asked = new Set(
      [...dashboardQueries(), readFileSync(ALERTS, 'utf8')].flatMap((expr) =>
        [...expr.matchAll(/\b(?:postern|nodejs|process)_\w+/g)].map(([name]) => name),
      ),
    );
    expect(asked.size).to.be.greaterThan(30);
    expect([...asked].filter((name) => !names.includes(name) && !histograms.includes(name))).to.deep.equal([]);
  });

  it('scrapes the daemon, fills every panel, and evaluates the alerts', async () => {
    const prometheus = await startPrometheus(new URL(postern.base).host);
    try {
      await until('a scrape', async () => (await prometheus.query('up{job="postern"}'))[0]?.value[1] === '1', 30_000);
      const value = async (expr: string) => Number((await prometheus.query(expr))[0]?.value[1]);
      expect(await value('postern_messages_accepted_total{source="smtp"}')).to.equal(20);
      expect(await value('sum(postern_attempts_total{class="inbound",outcome="delivered"})')).to.equal(20);
      expect(await value('postern_smtp_refusals_total{reason="no_relay"}')).to.equal(1);
      expect(await value('postern_config_last_reload_success')).to.equal(1);
      await Promise.all(dashboardQueries().map(prometheus.query));
      const rules = await until(
        'the alerts to be evaluated',
        async () => {
          const found = await prometheus.rules();
          return found.length === ALERT_NAMES.length && found.every(({ health }) => health !== 'unknown') && found;
        },
        30_000,
      );
      expect(rules.filter(({ health, lastError }) => health !== 'ok' || lastError)).to.deep.equal([]);
      expect(rules.filter(({ name, state }) => state !== 'inactive' && name !== 'PosternDiskFillsUp')).to.deep.equal(
        [],
      );
      writeFileSync(config, 'smtp:\n  no_such_setting: 1\n');
      postern.signal('SIGHUP');
      await until(
        'the alert',
        async () =>
          (await prometheus.rules()).some(({ name, state }) => name === 'PosternReloadRefused' && state !== 'inactive'),
        30_000,
      );
      expect(await value('postern_config_last_reload_success')).to.equal(0);
    } finally {
      await prometheus.stop();
    }
  });
});
