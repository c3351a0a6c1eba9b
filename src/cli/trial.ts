import { z } from 'zod';
import { EXIT, type Invocation, UsageError } from './command.ts';
import { withOperations, withSpool, withStore } from './open.ts';

/** The answer of /inbound/try. */
const TRIAL = z.looseObject({ status: z.int().nullable(), error: z.string().nullable(), answer: z.string() });

/** Whether the value of an option is a URL: `--to` of `replay` is a time, or the URL of a trial. */
export const isUrl = (text: string | undefined): text is string => /^https?:\/\//i.test(text ?? '');

/** Posts the event of one delivery to another URL, once, as /inbound/try does. It exits 1 unless the answer is 2xx. */
export async function tryAt(call: Invocation, url: string): Promise<number> {
  const [id, ...more] = call.words;
  if (id === undefined || more.length > 0) throw new UsageError('--to URL needs the id of exactly one delivery');
  const { settings } = call.settings();
  const owner = await withSpool(settings, async (spool) => (await spool.delivery(id))?.account);
  if (owner === undefined) throw new UsageError(`no such delivery: ${id} (see: postern queue list)`);
  const account = await withStore(settings, (store) => store.accounts.one({ id: owner }));
  if (!account)
    throw new UsageError(`${id} is not mail of an account (such as mail to postmaster), and cannot be posted`);
  const trial = TRIAL.parse(await withOperations(settings, (run) => run('/inbound/try', account, { id, url })));
  const { status, error, answer } = trial;
  const said = answer.trim() === '' ? '' : `: ${answer.trim()}`;
  call.print([trial], () =>
    status === null ? `No answer from ${url}: ${error}\n` : `${url} answered ${status}${said}\n`,
  );
  return status !== null && status >= 200 && status < 300 ? EXIT.ok : EXIT.failed;
}
