-- A database of schema 1 with a chat in it. Never change this file: such databases are on users' disks.

CREATE TABLE chats (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: other files are named after it
        title TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL,
        updated REAL NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        deleted REAL,  -- when, if it waits to be purged
        leaf_id INTEGER,  -- the last message of the branch shown
        shows INTEGER NOT NULL DEFAULT 0,  -- how often the leaf has changed
        settings TEXT NOT NULL DEFAULT '{}',
        unsent TEXT NOT NULL DEFAULT ''
    );

CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        parent_id INTEGER,
        role TEXT NOT NULL,
        kind TEXT NOT NULL DEFAULT 'message',
        state TEXT NOT NULL DEFAULT 'complete',
        created REAL NOT NULL,
        shown INTEGER NOT NULL DEFAULT 0,  -- the chat's `shows` when this was last its leaf
        deleted REAL,
        deleted_with INTEGER,  -- the message whose deletion took this one along
        writer TEXT,  -- the process that is writing it; see app/store/writer.py
        text TEXT NOT NULL,
        attachments TEXT NOT NULL DEFAULT '[]',
        origins TEXT NOT NULL DEFAULT '',
        report TEXT
    );

CREATE INDEX messages_of_chat ON messages(chat_id, parent_id, deleted);

CREATE INDEX messages_streaming ON messages(id) WHERE state = 'streaming';

CREATE INDEX chats_listed ON chats(pinned, updated) WHERE deleted IS NULL;

INSERT INTO chats(id, title, created, updated, pinned, leaf_id, shows, settings, unsent)
    VALUES (1, 'Kept', 1000.0, 2000.0, 1, 3, 3, '{"temperature": 0.5}', 'not sent');
INSERT INTO messages(id, chat_id, parent_id, role, kind, state, created, shown, text, attachments, origins, report) VALUES
    (1, 1, NULL, 'user', 'message', 'complete', 1001.0, 1, 'a question about 天気', '[{"name": "a.txt", "text": "x", "tokens": 1}]', '', NULL),
    (2, 1, 1, 'assistant', 'message', 'cancelled', 1002.0, 2, 'an old answer', '[]', 't3m10', '{"usage": {"completion_tokens": 5}}'),
    (3, 1, 1, 'assistant', 'message', 'streaming', 1003.0, 3, 'half an ans', '[]', '', NULL);
PRAGMA user_version = 1;
