import {
  createInspectionTask,
  createInspector,
  type Inspection,
  type InspectionInput,
} from '../../src/inbound/inspection.ts';
import type { Verdicts } from '../../src/mail/addresses/envelope.ts';
import { createTestLog } from './log.ts';

const UNSIGNED: Verdicts = {
  spf: { result: 'none', detail: '' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'none', policy: null, aligned: false },
  arc: { result: 'none' },
};

/** Looks into messages on this thread, and finds these verdicts. */
export function createTestJudging(verdicts: Verdicts = UNSIGNED) {
  const task = createInspectionTask({ authenticator: { authenticate: async () => verdicts } });
  return createInspector({
    run: async (pack: () => { readonly value: InspectionInput }): Promise<Inspection> =>
      (await task(pack().value, (work) => work())).value,
    log: createTestLog(),
  });
}
