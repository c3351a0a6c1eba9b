import type { Counter, Metrics } from '../../base/metrics.ts';
import type { Verdicts } from '../../mail/addresses/envelope.ts';

/** Counts new verdicts. */
export function createVerdictMeters(metrics: Metrics): (verdicts: Verdicts) => void {
  const of = (method: string, ...results: readonly string[]) => {
    const count = (result: string) => metrics.counter('postern_authentication_results_total', { method, result });
    const known = new Map<string, Counter>(results.map((result) => [result, count(result)]));
    const other = count('other');
    return (result: string) => (known.get(result) ?? other).add();
  };
  const methods = {
    spf: of('spf', 'pass', 'fail', 'softfail', 'neutral', 'none', 'temperror', 'permerror'),
    dkim: of('dkim', 'pass', 'fail', 'none'),
    dmarc: of('dmarc', 'pass', 'fail', 'none', 'temperror', 'permerror'),
    arc: of('arc', 'pass', 'fail', 'none', 'temperror', 'permerror'),
  };
  return ({ spf, dkim, dmarc, arc }) => {
    methods.spf(spf.result);
    methods.dkim(dkim.valid ? 'pass' : dkim.signed ? 'fail' : 'none');
    methods.dmarc(dmarc.result);
    methods.arc(arc.result);
  };
}
