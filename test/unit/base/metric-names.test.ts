import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { metricsDoc } from '../../../scripts/metrics.ts';
import { DECLARED } from '../../../src/base/metric-list.ts';

const here = (name: string) => readFileSync(new URL(name, import.meta.url), 'utf8');

describe('metric names', () => {
  it('are stable: a published metric keeps its kind and its labels (new ones go into the fixture too)', () => {
    const declared = DECLARED.map(
      ([name, { kind, labels = {} }]) => `${kind} ${name}{${Object.keys(labels).join(',')}}`,
    ).sort();
    expect(declared).to.deep.equal(here('../../fixtures/metrics.txt').trim().split('\n'));
  });

  it('follow the conventions of Prometheus', () => {
    for (const [name, { kind, help, buckets, threads, labels }] of DECLARED) {
      expect(name).to.match(/^postern_[a-z_]+$/);
      expect(name.endsWith('_total'), name).to.equal(kind === 'counter');
      expect(help, name).to.match(/^[A-Z0-9].*\.$/s);
      expect(buckets !== undefined, name).to.equal(kind === 'histogram');
      if (buckets) expect(buckets, name).to.deep.equal([...buckets].sort((a, b) => a - b));
      if (threads) expect(Object.keys(threads), name).to.have.members(Object.keys(labels ?? {}));
    }
  });

  it('are listed in docs/metrics.md (npm run docs writes it)', () => {
    expect(here('../../../docs/metrics.md') === metricsDoc(), 'docs/metrics.md is out of date: npm run docs').to.equal(
      true,
    );
  });

  it('include those that the dashboard and the alerts use', () => {
    const known = new Set(
      DECLARED.flatMap(([name, { kind }]) =>
        kind === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
      ),
    );
    for (const file of ['grafana-dashboard.json', 'prometheus-alerts.yml']) {
      const used = [...here(`../../../config/${file}`).matchAll(/\bpostern_[a-z_]+/g)].map(([name]) => name);
      expect(used.length, file).to.be.greaterThan(10);
      expect(
        used.filter((name) => !known.has(name)),
        file,
      ).to.deep.equal([]);
    }
  });

  it('are all on the dashboard, except those only for alerts and people', () => {
    const dashboard = here('../../../config/grafana-dashboard.json');
    const left = DECLARED.map(([name]) => name).filter((name) => !dashboard.includes(name));
    expect(left).to.deep.equal([
      'postern_spool_accepts_mail',
      'postern_spool_commit_writes',
      'postern_config_last_reload_success_timestamp_seconds',
    ]);
  });
});

describe('the dashboard', () => {
  interface Panel {
    readonly title: string;
    readonly type: string;
    readonly description?: string;
    readonly datasource?: { uid: string };
    readonly fieldConfig?: { defaults: { unit?: string } };
    readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  }
  const dashboard: {
    readonly panels: readonly Panel[];
    readonly templating: { readonly list: readonly { readonly name: string; readonly type: string }[] };
  } = JSON.parse(here('../../../config/grafana-dashboard.json'));
  const plots = dashboard.panels.filter(({ type }) => type !== 'row');

  it('has a description and a unit for each panel, and queries the selected source', () => {
    expect(dashboard.templating.list).to.deep.include.members([
      dashboard.templating.list.find(({ type }) => type === 'datasource'),
    ]);
    for (const { title, type, description, datasource, fieldConfig } of plots) {
      expect(description, title).to.match(/\S/);
      if (type === 'text') continue;
      expect(fieldConfig?.defaults.unit, title).to.match(/\S/);
      expect(datasource?.uid, title).to.equal('${datasource}');
    }
  });

  it('has no overlapping panels', () => {
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)} ${y + Math.floor(i / w)}`),
    );
    expect(new Set(cells).size).to.equal(cells.length);
  });
});

describe('the alerts', () => {
  const alerts = here('../../../config/prometheus-alerts.yml')
    .split(/^ {6}- alert: /m)
    .slice(1);
  const manual = here('../../../docs/operations.md');

  it('have a severity, a summary and a section with the remedy', () => {
    expect(alerts).to.have.length.within(10, 17);
    for (const alert of alerts) {
      const name = alert.split('\n')[0] ?? '';
      expect(alert, name)
        .to.match(/severity: (critical|warning)/)
        .and.to.match(/summary: "/)
        .and.to.contain(`runbook: docs/operations.md#${name.toLowerCase()}\n`);
      expect(manual, name).to.match(new RegExp(`^### ${name}$`, 'm'));
    }
  });
});
