import { expect } from 'chai';
import { createLog, printable } from '../../../src/base/log.ts';

function logged(act: (log: ReturnType<typeof createLog>) => void): Record<string, unknown>[] {
  const lines: string[] = [];
  act(createLog('info', (line) => lines.push(line)));
  return lines.map((line) => JSON.parse(line));
}

describe('the log', () => {
  it('writes one JSON object per line, with the event first and the time in UTC', () => {
    const [line] = logged((log) => log.info('message.accepted', { message: 'm1', size: 5 }));
    expect(line).to.include({ level: 'info', event: 'message.accepted', message: 'm1', size: 5 });
    expect(Object.keys(line ?? {})[0]).to.equal('event');
    expect(line?.time).to.match(/^\d{4}-\d\d-\d\dT.*Z$/);
  });

  it('never shows an API key', () => {
    const [line] = logged((log) => log.info('api.call', { key: 'secret', operation: '/users/ping' }));
    expect(JSON.stringify(line)).not.to.contain('secret');
  });

  it('escapes input for a terminal, and truncates it', () => {
    expect(printable('a\r\nb\x1b[31m\u202e')).to.equal('a\\u000d\\u000ab\\u001b[31m\\u202e');
    expect(printable('x'.repeat(1000))).to.have.length(257);
  });

  it('keeps to one line despite Unicode line ends, also in lists, objects and stacks', () => {
    const lines: string[] = [];
    const log = createLog('debug', (line) => lines.push(line));
    const hostile = 'a\u0085b\u2028c\u2029d\ve\ff\u009b31m\u202eg\u{e0001}';
    const error = new Error('x');
    error.stack = `Error: x\n    at ${hostile}`;
    log.error('daemon.fault', { text: hostile, list: [hostile], inner: { [hostile]: hostile }, error });
    expect(lines).to.have.length(1);
    expect(lines[0]?.slice(0, -1)).not.to.match(/[\p{Cc}\p{Cf}\u2028\u2029]/u);
    expect(JSON.parse(lines[0] ?? '').list).to.deep.equal([hostile]);
  });

  it('shows an error with its message and the first lines of its stack', () => {
    const [line] = logged((log) => log.error('daemon.fault', { error: new Error('broken\nhere') }));
    expect(line?.error).to.have.property('message', 'broken\\u000ahere');
  });

  it('escapes a plain text like any other', () => {
    const texts = ['"', '\\', 'a"b\\c', '\u0000', 'caf\u00e9', 'x'.repeat(1000), ''];
    const [plain] = logged((log) => log.info('api.call', { ...texts }));
    const [rich] = logged((log) => log.info('api.call', { ...texts, list: [] }));
    expect({ ...rich, time: '', list: undefined }).to.deep.equal({ ...plain, time: '', list: undefined });
    expect(plain).to.include({ 0: '"', 2: 'a"b\\c', 3: '\\u0000' });
  });

  it('writes numbers, booleans and null as they are, and omits undefined', () => {
    const [line] = logged((log) =>
      log.info('api.call', { n: 1.5, no: Number.NaN, yes: true, none: null, gone: undefined }),
    );
    expect(line).to.include({ n: 1.5, no: null, yes: true, none: null });
    expect(line).not.to.have.property('gone');
  });

  it('names values that JSON cannot represent, and never throws', () => {
    const circle: Record<string, unknown> = {};
    circle.circle = circle;
    const [line] = logged((log) => log.info('api.call', { circle, big: 1n, list: [1], act: () => 1 }));
    expect(line).to.deep.include({ circle: '[not serializable]', big: '[not serializable]', list: [1], act: null });
  });

  it('omits lines below its level', () => {
    expect(logged((log) => log.debug('api.call', {}))).to.deep.equal([]);
  });
});
