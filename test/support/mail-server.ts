import { type MailSink, startMailSink } from './mail-sink.ts';

/** What a server of mail says to the recipients of tests, by the beginning of the address. */
const REPLIES: Readonly<Record<string, { readonly code: number; readonly text: string }>> = {
  gone: { code: 550, text: '5.1.1 User unknown' },
  full: { code: 552, text: '5.2.2 Over Quota' },
  grey: { code: 450, text: '4.2.0 come back' },
};

export interface MailServer extends MailSink {
  /** Every recipient that was named to it, in order and as often as it was. */
  readonly asked: string[];
}

/**
 * A sink that takes mail but for `gone…` and `full…`, and for `grey…` when it sees one for the first time; then `hang…`
 * gets no answer.
 */
export async function startMailServer(): Promise<MailServer> {
  const asked: string[] = [];
  const sink = await startMailSink({
    onRcptTo({ address }, _session, done) {
      asked.push(address);
      if (address.startsWith('hang') && asked.filter((one) => one === address).length === 1) return;
      const reply = REPLIES[address.replace(/[\d@].*$/, '')];
      if (reply && !(address.startsWith('grey') && asked.filter((one) => one === address).length > 1)) {
        return done(Object.assign(new Error(reply.text), { responseCode: reply.code }));
      }
      done();
    },
  });
  return { ...sink, asked };
}
