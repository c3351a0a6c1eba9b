import { DECLARED, type MetricDeclaration } from '../src/base/metric-list.ts';
import { DELIVERY_KINDS, ENDPOINT_KINDS, KINDS } from '../src/queue/delivery.ts';

/** Values of labels that are listed elsewhere. */
const LISTED: Readonly<Record<string, string>> = {
  '{kinds}': DELIVERY_KINDS.map((kind) => `${kind} (${KINDS[kind].about})`).join(', '),
  '{endpoints}': ENDPOINT_KINDS.join(', '),
};

/** Makes docs/metrics.md from the declarations. */
export function metricsDoc(): string {
  const out = [
    '# Metrics',
    '',
    '<!-- Written by `npm run docs` from src/base/metric-list.ts; change that file. -->',
    '',
    '`GET /metrics` on `http.listen` returns them in the text format of Prometheus to the addresses in ' +
      '`metrics.allow`. Names and labels are',
    'stable; label values come from fixed lists, never from clients. The usual process metrics are there too ' +
      '(`process_…`, `nodejs_…`),',
    'among them the lag of the event loop (`nodejs_eventloop_lag_p99_seconds`).',
    '',
    '`config/prometheus.example.yml` scrapes them, `config/prometheus-alerts.yml` has alerts, ' +
      '`config/grafana-dashboard.json` shows them;',
    '[operations.md](operations.md#monitoring) explains the setup and what to do when an alert fires.',
    '',
  ];
  for (const [name, declared] of DECLARED) out.push(`## \`${name}\``, '', ...describe(declared), '');
  return out.join('\n').trimEnd() + '\n';
}

function* describe({ kind, help, labels = {}, buckets }: MetricDeclaration): Generator<string> {
  yield `${kind[0]?.toUpperCase()}${kind.slice(1)}. ${help}`;
  const lines = Object.entries(labels).map(([label, values]) => `- \`${label}\`: ${LISTED[values] ?? values}`);
  if (lines.length > 0) yield* ['', ...lines];
  if (buckets) yield* ['', `Buckets: ${buckets.join(', ')}`];
}
