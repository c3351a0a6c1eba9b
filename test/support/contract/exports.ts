import { exportJob } from './records.ts';
import { type Group, pages, required, string, strings } from './types.ts';

const email = { format: 'email' } as const;
const notify = string('notify_email', email);

export const exportJobs: Group = {
  name: 'exports',
  entries: [
    {
      path: '/exports/info',
      params: [required(string('id'))],
      returns: exportJob,
      names: ['id'],
      given: async (stage) => ({ id: (await stage.ok('/exports/rejects')).id }),
      errors: { Unknown_Export: (stage) => ({ id: `2013-01-01 12:20:28.${stage.fresh()}` }) },
    },
    {
      path: '/exports/list',
      params: [],
      beyondParams: pages,
      returns: { array: exportJob },
      given: async (stage) => {
        await stage.ok('/exports/whitelist');
        return {};
      },
      errors: {},
    },
    { path: '/exports/rejects', params: [notify], returns: exportJob, given: () => ({}), errors: {} },
    { path: '/exports/whitelist', params: [notify], returns: exportJob, given: () => ({}), errors: {} },
    {
      path: '/exports/activity',
      returns: exportJob,
      given: () => ({ date_from: '2026-01-01 00:00:00', date_to: '2026-01-05 00:00:00', tags: ['welcome'] }),
      errors: {},
      params: [
        notify,
        string('date_from', { format: 'time' }),
        string('date_to', { format: 'time' }),
        strings('tags'),
        strings('senders', { each: [email] }),
        strings('states', { each: [{ oneOf: ['sent', 'rejected', 'bounced', 'soft-bounced', 'spam', 'unsub'] }] }),
        strings('api_keys'),
      ],
    },
  ],
};
