import { expect } from 'chai';
import { createTerminalLog } from '../../../src/base/log.ts';

describe('the log on a terminal', () => {
  function logged(level: string, colour: boolean, write: (log: ReturnType<typeof createTerminalLog>) => void): string {
    let text = '';
    write(
      createTerminalLog(level, colour, (line) => {
        text += line;
      }),
    );
    return text;
  }

  it('is a readable line: time, level, the event in words, fields as name=value', () => {
    const text = logged('info', false, (log) =>
      log.info('daemon.ready', {
        smtp: ['127.0.0.1:2525', '[::1]:2525'],
        submission: [],
        http: '127.0.0.1:8080',
        tls: null,
        ms: 12,
        reply: '550 5.1.1 No "such" mailbox',
      }),
    );
    expect(text).to.match(
      /^\d\d:\d\d:\d\d info {2}daemon ready {11}smtp=127\.0\.0\.1:2525,\[::1\]:2525 submission=- http=127\.0\.0\.1:8080 tls=- ms=12 reply="550 5\.1\.1 No \\"such\\" mailbox"\n$/,
    );
  });

  it('colours levels only on request', () => {
    const lines = (colour: boolean) =>
      logged('debug', colour, (log) => {
        for (const level of ['debug', 'info', 'warn', 'error'] as const) log[level]('daemon.note');
      });
    for (const [level, code] of [
      ['debug', 2],
      ['info', 32],
      ['warn', 33],
      ['error', 31],
    ] as const)
      expect(lines(true)).to.contain(`\x1b[${code}m${level}`);
    expect(lines(false)).not.to.contain('\x1b');
  });

  it('omits lines below its level', () => {
    const text = logged('warn', false, (log) => {
      log.debug('daemon.note');
      log.info('daemon.note');
      log.warn('daemon.note');
      log.error('daemon.note');
    });
    expect(
      text
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[1]),
    ).to.deep.equal(['warn', 'error']);
    expect(logged('silent', false, (log) => log.error('daemon.note'))).to.equal('');
  });

  it('shows an error with its stack on separate lines', () => {
    expect(logged('info', false, (log) => log.error('daemon.fault', { error: new Error('it broke') }))).to.match(
      /^\S+ error daemon fault\n {4}it broke\n {4}at .*terminal-log\.test\.ts/,
    );
  });

  it('never shows a key or a terminal control character', () => {
    const text = logged('info', true, (log) =>
      log.info('smtp.session', { key: 'secret', helo: '\x1b[2Jevil\r\nforged=1', list: ['\x1b]0;x\x07'] }),
    );
    expect(text)
      .not.to.contain('secret')
      .and.not.to.contain('\x1b[2J')
      .and.not.to.contain('\x1b]0')
      .and.not.to.contain('\r');
    expect(text.trimEnd()).not.to.contain('\n');
  });
});
