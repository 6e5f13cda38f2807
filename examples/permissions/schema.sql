-- Who may do what in a workspace. Every row belongs to one workspace, which is what is
-- cached: the last statements have the database refuse changes that do not say so.
CREATE TABLE workspaces  (id int PRIMARY KEY, owner text NOT NULL);
CREATE TABLE groups      (workspace int NOT NULL REFERENCES workspaces, name text NOT NULL, PRIMARY KEY (workspace, name));
CREATE TABLE members     (workspace int NOT NULL, name text NOT NULL, person text NOT NULL, PRIMARY KEY (workspace, name, person));
CREATE TABLE subgroups   (workspace int NOT NULL, name text NOT NULL, child text NOT NULL, PRIMARY KEY (workspace, name, child));
CREATE TABLE folders     (workspace int NOT NULL, name text NOT NULL, parent text NOT NULL, PRIMARY KEY (workspace, name));
CREATE TABLE documents   (workspace int NOT NULL, name text NOT NULL, folder text NOT NULL, PRIMARY KEY (workspace, name));
CREATE TABLE grants      (workspace int NOT NULL, object text NOT NULL, subject text NOT NULL, may text NOT NULL, PRIMARY KEY (workspace, object, subject, may));
CREATE INDEX members_of_person ON members (workspace, person);

SELECT freshet.guard_table('workspaces', 'workspace:{id}');
SELECT freshet.guard_table('groups', 'workspace:{workspace}');
SELECT freshet.guard_table('members', 'workspace:{workspace}');
SELECT freshet.guard_table('subgroups', 'workspace:{workspace}');
SELECT freshet.guard_table('folders', 'workspace:{workspace}');
SELECT freshet.guard_table('documents', 'workspace:{workspace}');
SELECT freshet.guard_table('grants', 'workspace:{workspace}');
