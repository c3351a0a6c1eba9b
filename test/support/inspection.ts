import { createInspectionTask, type Inspection, type InspectionInput } from '../../src/inbound/inspection.ts';
import type { Verdicts } from '../../src/mail/addresses/envelope.ts';

const UNSIGNED: Verdicts = {
  spf: { result: 'none', detail: '' },
  dkim: { signed: false, valid: false },
  dmarc: { result: 'none', policy: null, aligned: false },
  arc: { result: 'none' },
};

/** In place of the threads that inspect messages: does so on this one, and finds no signature. */
export function createTestThreads() {
  const task = createInspectionTask({ authenticator: { authenticate: async () => UNSIGNED } });
  const run = async (pack: () => { readonly value: InspectionInput }): Promise<Inspection> =>
    (await task(pack().value, (work) => work())).value;
  return { task: () => run };
}
