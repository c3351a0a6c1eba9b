import { ACCOUNT, type ApiWorld } from './api.ts';

export const JOB = '01kcexamplejob000000000000';

/** What the examples of the history start from: a refusal, a job that has ended, and nothing left unwritten. */
export async function putHistory({ journal }: Pick<ApiWorld, 'journal'>): Promise<void> {
  journal.note({
    what: 'refused',
    at: Date.UTC(2026, 0, 5, 11, 20),
    session: null,
    transaction: null,
    listener: 'smtp',
    stage: 'RCPT',
    reply: '550 5.1.1 No such mailbox here',
    reason: 'noMailbox',
    client: '192.0.2.1',
    helo: 'mail.sender.example',
    tls: 'TLSv1.3',
    sender: 'sam@sender.example',
    recipient: 'nobody@inbound.example.com',
    account: ACCOUNT,
  });
  const job = {
    by: 'Exam',
    account: ACCOUNT,
    detail: `job ${JOB}: query state:dead, url https://app.example.com/hooks/mail`,
  };
  for (const [minute, what, count] of [
    [54, 'replay started', 1210],
    [55, 'replayed', 1204],
  ] as const)
    journal.note({ what: 'action', action: { ...job, at: Date.UTC(2026, 0, 5, 11, minute), what, count } });
  await journal.flush();
}
