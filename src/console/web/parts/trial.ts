import { type ComponentChildren, h } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import type { Answer } from '../operations.ts';
import type { Trial } from '../records.ts';
import { Button } from './elements.ts';
import { plain } from './text.ts';

export function TrialAnswer({
  trial,
}: {
  readonly trial: Pick<Trial, 'status' | 'error' | 'duration_ms' | 'answer'>;
}): ComponentChildren {
  const { status, error, duration_ms: ms, answer } = trial;
  return h(
    'div',
    { role: 'status' },
    h(
      'p',
      null,
      h('strong', null, status === null ? `No response: ${plain(error ?? '')}` : `HTTP ${status}`),
      ` in ${ms} ms`,
    ),
    answer !== '' && h('pre', { class: 'code', tabIndex: 0 }, plain(answer)),
  );
}

/** Posts a sample to the URL of a route, and shows the answer. */
export function PostSample({
  route,
  address,
  label,
}: {
  readonly route: string;
  readonly address?: string;
  readonly label: string;
}): ComponentChildren {
  const [trial, setTrial] = useState<Answer<'inbound/try-route'>>();
  return h(
    'div',
    { class: 'sample' },
    h(Button, {
      label,
      title: 'Posts a sample event, signed as usual, with X-Postern-Trial: 1',
      onPress: async () =>
        setTrial(await call('inbound/try-route', { id: route, ...(address !== undefined && { address }) })),
    }),
    trial && [
      h('p', { key: 'to', class: 'faint' }, 'Posted one sample for ', h('bdi', null, plain(trial.email)), '.'),
      h(TrialAnswer, { key: 'answer', trial }),
    ],
  );
}
