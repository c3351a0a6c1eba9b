import { scannerSettings, scanningSettings } from '../composition/slices.ts';
import { probe } from '../scan/probe.ts';
import { createScanners } from '../scan/scanners.ts';
import { type Check, fault, ok, warning } from './finding.ts';

const NAMES = { spam: 'the spam test message (GTUBE)', virus: 'the test virus (EICAR)' };

/** Each scanner finds its standard test message. */
export const scanners: Check = {
  name: 'scanners',
  async *run({ settings, clock }) {
    const { timeoutMs } = scanningSettings(settings);
    for await (const probed of probe(createScanners(scannerSettings(settings)), { timeoutMs, clock })) {
      const { name, finds } = probed.scanner;
      const check = `scanner ${name}`;
      if (probed.fault !== undefined)
        yield fault(
          check,
          probed.fault,
          `Start it, or remove it from the settings: mail waits for it (scan.wait_hours).`,
        );
      else if (probed.found) yield ok(check, `found ${NAMES[finds]} in ${probed.ms} ms`);
      else
        yield warning(
          check,
          `answered in ${probed.ms} ms, but did not find ${NAMES[finds]}`,
          'Its rules or its database may be missing; run its own diagnostics.',
        );
    }
  },
};
