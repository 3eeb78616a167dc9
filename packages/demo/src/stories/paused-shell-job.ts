import { pausedBeforeWrite } from './paused-before-write.js';
import { reply, type Story, step } from './story.js';

export const pausedShellJob: Story = {
  number: 14,
  title: 'The paused shell job',
  source: 'story 1, for any program: fenced run -- sh job.sh',
  summary:
    'Two shell jobs run under "fenced run", which stops a job before its lease ends. But a machine that sleeps stops ' +
    '"fenced run", too. Here it is stopped together with job 1. The lease ends, and job 2 writes. The machine wakes up, ' +
    'and job 1 goes on before "fenced run" does. The storage refuses its write with the old FENCED_TOKEN.',
  lesson: 'Present FENCED_TOKEN with each write. The stop of a late job may come too late.',
  underFencedRun: true,
  pinned: { lock: 'lost', token: 'safe' },

  play: pausedBeforeWrite.play,

  steps: [
    step('client 1', 'read'),
    step('client 1', 'pause'),
    step('client 2', 'write'),
    step('client 1', 'wake'),
    reply('client 1'),
  ],
};
