import { expect } from 'chai';
import { adviceOf, REFUSAL_REASONS } from '../../../src/smtp/advice.ts';
import { REFUSALS } from '../../../src/smtp/replies.ts';

describe('the advice about refusals', () => {
  it('has full sentences for every refusal, including those for a single message', () => {
    expect(REFUSAL_REASONS).to.have.members([...Object.keys(REFUSALS), 'unknownThing', 'faultyTemplate']);
    for (const reason of REFUSAL_REASONS) expect(adviceOf(reason), reason).to.match(/^[A-Z][^`]{20,}[.)]$/);
  });

  it('handles a reason of another version', () => {
    for (const reason of ['tooOld', 'toString', ''])
      expect(adviceOf(reason), reason).to.equal('This version does not know the reason; see the reply.');
  });
});
