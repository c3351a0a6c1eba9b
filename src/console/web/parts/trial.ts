import { useState } from 'preact/hooks';
import { call } from '../call.ts';
import { h } from '../h.ts';
import type { Answer } from '../operations.ts';
import type { Trial } from '../records.ts';
import { Button } from './elements.ts';
import { plain } from './text.ts';

export function TrialAnswer({ trial }: { readonly trial: Pick<Trial, 'status' | 'error' | 'duration_ms' | 'answer'> }) {
  const { status, error, duration_ms: ms, answer } = trial;
  return h('div', { role: 'status' }, [
    h('p', [h('strong', status === null ? `No response: ${plain(error ?? '')}` : `HTTP ${status}`), ` in ${ms} ms`]),
    answer !== '' && h('pre.code', { tabIndex: 0 }, plain(answer)),
  ]);
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
}) {
  const [trial, setTrial] = useState<Answer<'inbound/try-route'>>();
  return h('div.sample', [
    h(Button, {
      label,
      title: 'Posts a sample event, signed as usual, with X-Postern-Trial: 1',
      onPress: async () => setTrial(await call('inbound/try-route', { id: route, address })),
    }),
    trial &&
      h('div.answered', [
        h('p.faint', ['Posted one sample for ', h('bdi', plain(trial.email)), '.']),
        h(TrialAnswer, { trial }),
      ]),
  ]);
}
