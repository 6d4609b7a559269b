CREATE TABLE teacher (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT UNIQUE
);

CREATE TABLE room (
    id INTEGER PRIMARY KEY,
    building TEXT NOT NULL,
    number TEXT NOT NULL,
    seats INTEGER NOT NULL
);

CREATE TABLE course (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    teacher_id INTEGER NOT NULL REFERENCES teacher(id),
    credits INTEGER NOT NULL
);

CREATE TABLE lesson (
    id INTEGER PRIMARY KEY,
    course_id INTEGER NOT NULL REFERENCES course(id),
    room_id INTEGER NOT NULL REFERENCES room(id),
    weekday INTEGER NOT NULL,
    starts TEXT NOT NULL,
    ends TEXT NOT NULL
);

CREATE TABLE enrolment (
    student_id INTEGER NOT NULL,
    course_id INTEGER NOT NULL REFERENCES course(id),
    enrolled TEXT NOT NULL
);

CREATE VIEW timetable AS
SELECT lesson.weekday, lesson.starts, lesson.ends,
       course.title, teacher.name, room.building, room.number
FROM lesson
JOIN course ON course.id = lesson.course_id
JOIN teacher ON teacher.id = course.teacher_id
JOIN room ON room.id = lesson.room_id
ORDER BY lesson.weekday, lesson.starts;

CREATE VIEW load AS
SELECT teacher.name, COUNT(lesson.id) AS lessons
FROM teacher
JOIN course ON course.teacher_id = teacher.id
JOIN lesson ON lesson.course_id = course.id
GROUP BY teacher.id;
