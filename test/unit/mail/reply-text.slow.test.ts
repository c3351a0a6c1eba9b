import { expect } from 'chai';
import { splitHtmlReply, splitReply } from '../../../src/mail/replies/reply-text.ts';
import { growth, repeated } from '../../support/growth.ts';
import { HOSTILE_LINES } from '../../support/quoting.ts';

describe('the reply in a hostile text', () => {
  it('is found in time proportional to the text', function () {
    this.timeout(120_000);
    for (const unit of HOSTILE_LINES)
      for (const split of [splitReply, splitHtmlReply])
        expect(
          growth((size) => {
            split(`own\n${repeated(unit, size)}`);
          }, 60_000),
          unit,
        ).to.be.below(64);
  });
});
