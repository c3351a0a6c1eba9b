/**
 * A render thread that can be broken: what a message says in `X-Test` happens to it, because no input is known that
 * would do it.
 */
import { parentPort } from 'node:worker_threads';
import '../../src/composition/render-thread.ts';
import type { ComposeJob } from '../../src/sending/types.ts';
import type { ContentInput } from '../../src/webhooks/render/content.ts';
import type { RenderInput } from '../../src/webhooks/render/renderer.ts';

interface Kept {
  readonly before: Kept | undefined;
  readonly text: string;
}

type Input = RenderInput | ComposeJob | ContentInput;

parentPort?.on('message', (calls: readonly (readonly [n: number, name: string, [Input]])[]) => {
  for (const [, , [input]] of calls) {
    const bodies = bodiesOf(input);
    const text = bodies
      .map((body) => (body.kind === 'memory' ? Buffer.from(body.bytes).toString('latin1') : ''))
      .join('');
    const isRaw = (isRender(input) ? input[2] : 'parseError' in input ? input.parseError : null) !== null;
    const order = /^X-Test: (\w+)/m.exec(text)?.[1];
    if (order === 'die' || (order === 'throw' && !isRaw)) throw new Error('broken by a test');
    if (order === 'memory' && !isRaw) useMemory();
    while (order === 'hang' && !isRaw);
  }
});

const isRender = (input: Input): input is RenderInput => Array.isArray(input);

function bodiesOf(input: Input) {
  if (isRender(input)) return input[0].mails.map(({ body }) => body);
  return ['mail' in input ? input.mail.body : input.body];
}

const { stringify } = JSON;
/** A message whose subject no payload can hold. */
JSON.stringify = (value: unknown, ...rest: any[]) => {
  if (value === 'unwritable') throw new TypeError('broken by a test');
  return stringify(value, ...rest);
};

/** In small bites: one large one past the limit would end the process and not the thread. */
function useMemory(): void {
  let kept: Kept | undefined;
  for (let i = 0; ; i++) kept = { before: kept, text: `${i} is kept` };
}
