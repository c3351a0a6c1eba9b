import { FaultyTemplate } from '../../mail/merge/faulty-template.ts';
import { TooLarge } from '../../outbound/compose/too-large.ts';
import type { Composed, ComposeJob } from '../../outbound/types.ts';
import type { RunMarked } from './lane.ts';
import type { MailJob, ThreadReply } from './protocol.ts';

interface Deps {
  readonly marked: RunMarked;
  /** Throws TooLarge for what no server would take, FaultyTemplate for what cannot be merged. */
  readonly compose: (job: ComposeJob) => Promise<Composed>;
}

type Composing = Extract<ThreadReply, { kind: 'composed' | 'refused' }>;

/** Composes mail going out. Throws when the disk fails. */
export function createComposing({ marked, compose }: Deps): (job: MailJob) => Promise<Composing> {
  return async ({ number, compose: job }) => {
    try {
      const { bytes, ...rest } = await marked(number, () => compose(job));
      return { kind: 'composed', number, composed: { bytes: toOwned(bytes), ...rest } };
    } catch (error) {
      if (isOfTheSystem(error)) throw error;
      const faulty = error instanceof FaultyTemplate;
      const reason = error instanceof Error ? error.message : String(error);
      return {
        kind: 'refused',
        number,
        reason: faulty ? `faulty template: ${reason}` : reason,
        final: faulty || error instanceof TooLarge,
      };
    }
  };
}

/** What is handed over to another thread must not share its memory with anything else. */
function toOwned(bytes: Uint8Array): Uint8Array {
  return bytes.byteLength === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes);
}

/** Files that cannot be read are no fault of the message. */
function isOfTheSystem(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error;
}
